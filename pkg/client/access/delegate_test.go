package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/scheme"
)

// api answers reviews and counts them.
type api struct {
	scheme *scheme.Scheme
	asked  []string
	down   bool
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.down {
		return nil, errors.New("connection refused")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	obj, _, err := a.scheme.Decode(body, scheme.Protobuf, nil)
	if err != nil {
		return nil, err
	}
	switch review := obj.(type) {
	case *authenticationv1.TokenReview:
		a.asked = append(a.asked, "token "+review.Spec.Token)
		if review.Spec.Token == "good" {
			review.Status.Authenticated = true
			review.Status.User = authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"staff"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
		}
	case *authorizationv1.SubjectAccessReview:
		what := ""
		if p := review.Spec.NonResourceAttributes; p != nil {
			what = p.Verb + " " + p.Path
		} else {
			what = review.Spec.ResourceAttributes.Verb + " " + review.Spec.ResourceAttributes.Subresource
		}
		a.asked = append(a.asked, review.Spec.User+" "+what)
		review.Status.Allowed = strings.HasPrefix(what, "get ")
	}
	out, err := a.scheme.Encode(obj, scheme.Protobuf)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", scheme.Protobuf)
	w.Write(out)
	return w.Result(), nil
}

type rig struct {
	*access.Delegate
	api *api
	now time.Time
}

func newRig(t *testing.T, cfg access.Config) *rig {
	t.Helper()
	r := &rig{api: &api{scheme: scheme.New()}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c, err := client.New(r.api.scheme, client.Config{Servers: []string{"http://api"}, Transport: r.api})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Reviews, cfg.Now = access.Reviews{Client: c}, func() time.Time { return r.now }
	cfg.TokenTTL, cfg.AllowTTL, cfg.DenyTTL = access.DefaultTokenTTL, access.DefaultAllowTTL, access.DefaultDenyTTL
	r.Delegate = access.New(cfg)
	return r
}

func (r *rig) request(authorization string, cert *x509.Certificate) *http.Request {
	req := httptest.NewRequest("GET", "/", nil)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	if cert != nil {
		req.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	}
	return req
}

func TestAuthenticate(t *testing.T) {
	r := newRig(t, access.Config{Tokens: true})
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "bob", Organization: []string{"ops"}}, NotAfter: r.now.Add(time.Minute)}
	old := &x509.Certificate{Subject: cert.Subject, NotAfter: r.now.Add(-time.Minute)}
	ann := &access.User{Name: "ann", UID: "7", Groups: []string{"staff"}, Extra: map[string][]string{"k": {"v"}}}
	for name, row := range map[string]struct {
		header string
		cert   *x509.Certificate
		want   *access.User
	}{
		"a certificate":           {"", cert, &access.User{Name: "bob", Groups: []string{"ops", "system:authenticated"}}},
		"a token":                 {"Bearer good", nil, ann},
		"both: the certificate":   {"Bearer good", cert, &access.User{Name: "bob", Groups: []string{"ops", "system:authenticated"}}},
		"an old certificate":      {"", old, nil},
		"an old one and a token":  {"bearer good", old, ann},
		"a token that is no good": {"Bearer bad", nil, nil},
		"a password":              {"Basic Z29vZDpnb29k", nil, nil},
		"an empty token":          {"Bearer ", nil, nil},
		"nothing":                 {"", nil, nil},
		"a certificate of nobody": {"", &x509.Certificate{NotAfter: r.now.Add(time.Minute)}, nil},
	} {
		got, err := r.Authenticate(r.request(row.header, row.cert))
		if diff := cmp.Diff(row.want, got); diff != "" || (err == nil) != (row.want != nil) {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	quiet := newRig(t, access.Config{Anonymous: true})
	if got, err := quiet.Authenticate(quiet.request("", nil)); err != nil || got.Name != "system:anonymous" {
		t.Errorf("who shows nothing: %+v, %v", got, err)
	}
	if got, err := quiet.Authenticate(quiet.request("Bearer good", nil)); err == nil {
		t.Errorf("a token where none are taken: %+v", got)
	}
}

func TestReviewsAreCached(t *testing.T) {
	r := newRig(t, access.Config{Tokens: true})
	ann := &access.User{Name: "ann"}
	ask := func(verb string) {
		t.Helper()
		got, err := r.MayResource(t.Context(), ann, authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Subresource: "log"})
		if err != nil || got != (verb == "get") {
			t.Fatalf("%s: %v, %v", verb, got, err)
		}
	}
	story := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, r.api.asked); diff != "" {
			t.Fatal(diff)
		}
		r.api.asked = nil
	}
	ask("get")
	ask("get")
	ask("create")
	ask("create")
	story("ann get log", "ann create log")
	r.now = r.now.Add(30 * time.Second)
	ask("get")
	ask("create") // denied decisions expire sooner
	story("ann create log")
	r.now = r.now.Add(5 * time.Minute)
	ask("get")
	story("ann get log")

	for range 2 {
		if u, err := r.Authenticate(r.request("Bearer good", nil)); err != nil || u.Name != "ann" {
			t.Fatal(u, err)
		}
		if u, err := r.Authenticate(r.request("Bearer bad", nil)); !errors.Is(err, access.ErrUnknown) {
			t.Fatal(u, err)
		}
	}
	story("token good", "token bad")
	r.now = r.now.Add(access.DefaultTokenTTL)
	r.api.down = true
	if u, err := r.Authenticate(r.request("Bearer good", nil)); err == nil || errors.Is(err, access.ErrUnknown) {
		t.Errorf("nobody to ask: %v, %v", u, err)
	}
	r.api.down = false
	if ok, err := r.MayPath(t.Context(), ann, "get", "/metrics"); !ok || err != nil {
		t.Error(ok, err)
	}
	story("ann get /metrics")
}
