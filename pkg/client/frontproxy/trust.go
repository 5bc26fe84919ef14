package frontproxy

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"podium/pkg/client/access"
	"podium/pkg/client/certfile"
)

// Trust says which front proxies are trusted, and in which headers they name the user.
type Trust struct {
	Roots         *x509.CertPool // sign the proxies' certificates
	Names         []string       // their common names; empty: any
	UserHeaders   []string       // the first one present applies
	UIDHeaders    []string
	GroupHeaders  []string // all values apply
	ExtraPrefixes []string // the rest of the header's name is the extra's key
}

// Parse reads the published settings. It returns nil if they contain no CA of front
// proxies: then none is trusted.
func Parse(data map[string]string) (*Trust, error) {
	const pem = "requestheader-client-ca-file"
	if data[pem] == "" {
		return nil, nil
	}
	t := &Trust{}
	var errs []error
	for key, to := range map[string]*[]string{
		"allowed-names": &t.Names, "username-headers": &t.UserHeaders, "uid-headers": &t.UIDHeaders,
		"group-headers": &t.GroupHeaders, "extra-headers-prefix": &t.ExtraPrefixes,
	} {
		key = "requestheader-" + key
		if text := data[key]; text != "" {
			if err := json.Unmarshal([]byte(text), to); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key, err))
			}
		}
	}
	var err error
	t.Roots, err = certfile.ParsePool([]byte(data[pem]), pem)
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return t, nil
}

// User returns the user in a request's headers, nil if they contain none. If they
// do, the client certificate must be that of a front proxy: otherwise the error is an
// access.ErrUnknown. It verifies the certificate, so TLS only needs to request it.
func (t *Trust) User(r *http.Request, now time.Time) (*access.User, error) {
	u := t.named(r.Header)
	if u == nil {
		return nil, nil
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, fmt.Errorf("front proxy: no client certificate: %w", access.ErrUnknown)
	}
	leaf, intermediates := r.TLS.PeerCertificates[0], x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: t.Roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("front proxy: %w: %w", access.ErrUnknown, err)
	}
	if len(t.Names) > 0 && !slices.Contains(t.Names, leaf.Subject.CommonName) {
		return nil, fmt.Errorf("front proxy: the common name %q is not allowed: %w", leaf.Subject.CommonName, access.ErrUnknown)
	}
	return u, nil
}

// named returns the user in the headers, nil without a name.
func (t *Trust) named(h http.Header) *access.User {
	u := &access.User{Name: first(h, t.UserHeaders), UID: first(h, t.UIDHeaders)}
	if u.Name == "" {
		return nil
	}
	for _, name := range t.GroupHeaders {
		u.Groups = append(u.Groups, h.Values(name)...)
	}
	for _, prefix := range t.ExtraPrefixes {
		for name, values := range h {
			if len(name) <= len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
				continue
			}
			key := strings.ToLower(name[len(prefix):])
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			if u.Extra == nil {
				u.Extra = map[string][]string{}
			}
			u.Extra[key] = append(u.Extra[key], values...)
		}
	}
	return u
}

// first returns the first header of names that is not empty.
func first(h http.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}
