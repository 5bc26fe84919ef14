package authn

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"podium/pkg/apiserver/request"
)

// FrontProxyConfig sets which front proxies are trusted, and in which headers
// they send the user.
//
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#authenticating-proxy
type FrontProxyConfig struct {
	Certificates  CertificateConfig // verifies the proxies' certificates
	Names         []string          // their common names; empty: any name
	UserHeaders   []string          // the first one present applies
	UIDHeaders    []string
	GroupHeaders  []string // all values apply
	ExtraPrefixes []string // prefixes of headers; the rest of the header's name is the extra's key
}

// FrontProxy authenticates users by the headers of a proxy that has a valid
// certificate. It removes the headers from every request, including those that
// do not come from a proxy.
func FrontProxy(cfg FrontProxyConfig) Authenticator {
	p := &frontProxy{cfg: cfg, verifier: newVerifier(cfg.Certificates)}
	return Func(p.authenticate)
}

type frontProxy struct {
	cfg      FrontProxyConfig
	verifier *verifier
}

var errProxyName = errors.New("the client certificate's common name is not that of a front proxy")

func (p *frontProxy) authenticate(r *http.Request) (*request.User, error) {
	said := p.take(r.Header)
	if said == nil {
		return nil, nil
	}
	v, err := p.verifier.verify(r)
	if err != nil {
		return nil, fmt.Errorf("front proxy: %w", err)
	}
	if v == nil {
		return nil, nil
	}
	if len(p.cfg.Names) > 0 && !slices.Contains(p.cfg.Names, v.chain[0].Subject.CommonName) {
		return nil, errProxyName
	}
	return said, nil
}

// take removes the headers and returns the user that they name, or nil without
// a user name.
func (p *frontProxy) take(h http.Header) *request.User {
	u := &request.User{Name: first(h, p.cfg.UserHeaders), UID: first(h, p.cfg.UIDHeaders)}
	for _, name := range p.cfg.GroupHeaders {
		u.Groups = append(u.Groups, h.Values(name)...)
	}
	for _, prefix := range p.cfg.ExtraPrefixes {
		for name, values := range h {
			if len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				if u.Extra == nil {
					u.Extra = map[string][]string{}
				}
				key := ExtraKey(name[len(prefix):])
				u.Extra[key] = append(u.Extra[key], values...)
				delete(h, name)
			}
		}
	}
	for _, name := range slices.Concat(p.cfg.UserHeaders, p.cfg.UIDHeaders, p.cfg.GroupHeaders) {
		h.Del(name)
	}
	if u.Name == "" {
		return nil
	}
	u.Groups = append(u.Groups, Authenticated)
	return u
}

// first returns the first non-empty header of names.
func first(h http.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// ExtraKey decodes the key of an extra from a header's name: in lower case and
// percent-decoded, since header names are case-insensitive and limited in their
// characters.
func ExtraKey(name string) string {
	name = strings.ToLower(name)
	if plain, err := url.PathUnescape(name); err == nil {
		return plain
	}
	return name
}
