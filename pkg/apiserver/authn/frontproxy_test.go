package authn_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

func TestFrontProxy(t *testing.T) {
	proxies, clients := newAuthority(t, "proxies"), newAuthority(t, "clients")
	front := proxies.issue(pkix.Name{CommonName: "front"}, time.Hour)
	pool := proxies.pool()
	check := authn.FrontProxy(authn.FrontProxyConfig{
		Certificates: authn.CertificateConfig{Roots: func() *x509.CertPool { return pool }},
		Names:        []string{"front"}, UserHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraPrefixes: []string{"X-Remote-Extra-"},
	})
	said := func() http.Header {
		return http.Header{
			"X-Remote-User": {"ann"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"ops", "dev"},
			"X-Remote-Extra-Example.com%2fscopes": {"a", "b"}, "X-Other": {"stays"},
		}
	}
	for name, tc := range map[string]struct {
		cert   *x509.Certificate
		header http.Header
		want   *request.User
		bad    bool
	}{
		"a proxy's word": {front, said(), &request.User{
			Name: "ann", UID: "7", Groups: []string{"ops", "dev", "system:authenticated"},
			Extra: map[string][]string{"example.com/scopes": {"a", "b"}},
		}, false},
		"a proxy that names nobody":     {front, http.Header{"X-Remote-Group": {"system:masters"}}, nil, false},
		"a client's word":               {clients.issue(pkix.Name{CommonName: "front"}, time.Hour), said(), nil, true},
		"another of the proxies' own":   {proxies.issue(pkix.Name{CommonName: "back"}, time.Hour), said(), nil, true},
		"nobody's word":                 {nil, said(), nil, false},
		"a proxy whose time is over":    {proxies.issue(pkix.Name{CommonName: "front"}, -time.Minute), said(), nil, true},
		"a client that says nothing of": {clients.issue(pkix.Name{CommonName: "ann"}, time.Hour), http.Header{}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := shown()
			if tc.cert != nil {
				r = shown(tc.cert)
			}
			r.Header = tc.header
			got, err := check.Authenticate(r)
			if (err != nil) != tc.bad {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			delete(r.Header, "X-Other")
			if len(r.Header) > 0 {
				t.Errorf("left for those behind: %v", r.Header)
			}
		})
	}
}

func FuzzFrontProxy(f *testing.F) {
	proxies := newAuthority(f, "proxies")
	front := proxies.issue(pkix.Name{CommonName: "front"}, time.Hour)
	pool := proxies.pool()
	check := authn.FrontProxy(authn.FrontProxyConfig{
		Certificates: authn.CertificateConfig{Roots: func() *x509.CertPool { return pool }},
		UserHeaders:  []string{"X-Remote-User"}, ExtraPrefixes: []string{"X-Remote-Extra-"},
	})
	f.Add("ann", "X-Remote-Extra-A%2Fb", "c")
	f.Add("", "x-remote-extra-%zz", "")
	f.Fuzz(func(t *testing.T, user, name, value string) {
		r := shown(front)
		r.Header = http.Header{"X-Remote-User": {user}, name: {value}}
		got, err := check.Authenticate(r)
		if err != nil || (got != nil) != (user != "") {
			t.Fatalf("%v, %v", got, err)
		}
	})
}
