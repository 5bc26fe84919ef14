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

// FrontProxyConfig says which proxies in front of the server are believed, and
// in which headers they say who the user is.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#authenticating-proxy
type FrontProxyConfig struct {
	Certificates  CertificateConfig // of the proxies
	Names         []string          // their common names; none: all that are signed
	UserHeaders   []string          // the first that is set counts
	UIDHeaders    []string
	GroupHeaders  []string // all count
	ExtraPrefixes []string // of headers whose rest is an extra's name
}

// FrontProxy knows users by what a proxy says that has shown a certificate. The
// headers are taken out of the request, also of one that came past the proxy.
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

// take removes the headers and returns the user they name, nil if they name
// none.
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

func first(h http.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// ExtraKey reads the name of an extra as a header has it: in lower case, with
// other characters percent-encoded, since headers know neither case nor all
// characters.
func ExtraKey(name string) string {
	name = strings.ToLower(name)
	if plain, err := url.PathUnescape(name); err == nil {
		return plain
	}
	return name
}
