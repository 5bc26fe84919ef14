package apiserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
)

const reviews = "/apis/authentication.k8s.io/v1/"

func TestSelfSubjectReview(t *testing.T) {
	w := start(t)
	got := must[authenticationv1.SelfSubjectReview](w, 201, "POST", reviews+"selfsubjectreviews", jsonType, `{}`)
	want := authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters", "system:authenticated"}}
	if diff := cmp.Diff(want, got.Status.UserInfo); diff != "" {
		t.Error(diff)
	}
	if got.CreationTimestamp.IsZero() || got.Kind != "SelfSubjectReview" {
		t.Errorf("answered %+v", got)
	}
}

// newTokens returns the service account tokens of the issuer https://us, and their new key.
func newTokens(t *testing.T) (*authn.Tokens, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := authn.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	return authn.NewTokens(authn.TokenConfig{Issuers: []string{"https://us"}, Keys: func() *authn.KeySet { return keys }}), key
}

// withTokens configures service account tokens.
func withTokens(t *testing.T, tokens *authn.Tokens) func(*apiserver.Config) {
	t.Helper()
	return func(c *apiserver.Config) {
		c.Authn = apiserver.Authentication{Tokens: tokens, Audiences: tokens.Audiences(), Issuer: tokens}
		c.Kinds = registry.Kinds(c.Scheme, registry.Config{
			Store: c.Store, ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), NodePorts: registry.PortRange{First: 30000, Last: 32767},
			Now: time.Now, Tokens: tokens, TokenAudiences: tokens.Audiences(), Identify: tokens,
		})
	}
}

func TestTokenReview(t *testing.T) {
	tokens, _ := newTokens(t)
	w := start(t, withTokens(t, tokens))
	account := must[metav1.PartialObjectMetadata](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", jsonType,
		`{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"robot"}}`)
	token := func(audience string) string {
		body := `{"spec":{"audiences":["` + audience + `"]}}`
		return must[authenticationv1.TokenRequest](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", jsonType, body).Status.Token
	}
	requestClientCertificates := func(token, audiences string) authenticationv1.TokenReviewStatus {
		return must[authenticationv1.TokenReview](w, 201, "POST", reviews+"tokenreviews", jsonType,
			`{"spec":{"token":"`+token+`","audiences":[`+audiences+`]}}`).Status
	}
	ours := token("https://us")
	for _, tc := range []struct {
		name, token, audiences string
		ok                     bool
		want                   []string
	}{
		{"ours, for us", ours, ``, true, []string{"https://us"}},
		{"ours, for us among others", ours, `"them","https://us"`, true, []string{"https://us"}},
		{"ours, for others", ours, `"them"`, false, nil},
		{"theirs, for us", token("them"), ``, false, nil},
		{"theirs, for them", token("them"), `"them"`, true, []string{"them"}},
		{"none of ours", "x.y.z", ``, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := requestClientCertificates(tc.token, tc.audiences)
			if got.Authenticated != tc.ok || (got.Error == "") != tc.ok {
				t.Fatalf("answered %+v", got)
			}
			if strings.Contains(got.Error, tc.token) {
				t.Errorf("the error tells the token: %s", got.Error)
			}
			if !tc.ok {
				return
			}
			if got.User.Username != "system:serviceaccount:default:robot" || got.User.UID != string(account.UID) {
				t.Errorf("is %+v", got.User)
			}
			if diff := cmp.Diff(tc.want, got.Audiences); diff != "" {
				t.Error(diff)
			}
		})
	}
	if rec := w.do("POST", reviews+"tokenreviews", jsonType, `{}`); rec.Code != http.StatusBadRequest {
		t.Errorf("without a token: %d %s", rec.Code, rec.Body)
	}
}

// Reviews support only create, and discovery shows that.
func TestReviewsAreOnlyCreated(t *testing.T) {
	w := start(t)
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE"} {
		for _, path := range []string{"tokenreviews", "tokenreviews/x"} {
			rec := w.do(method, reviews+path, mergeType, `{}`)
			if rec.Code != http.StatusMethodNotAllowed || rec.Header().Get("Allow") != "POST" {
				t.Errorf("%s %s: %d, Allow: %s", method, path, rec.Code, rec.Header().Get("Allow"))
			}
		}
	}
	list := must[metav1.APIResourceList](w, 200, "GET", strings.TrimSuffix(reviews, "/"), "", "")
	for _, r := range list.APIResources {
		if diff := cmp.Diff(metav1.Verbs{"create"}, r.Verbs); diff != "" {
			t.Errorf("%s: %s", r.Name, diff)
		}
	}
	if len(list.APIResources) != 2 {
		t.Errorf("resources: %+v", list.APIResources)
	}
}

// Relying parties find the keys of service account tokens through two discovery
// pages.
func TestWhereOthersFindOurKeys(t *testing.T) {
	tokens, key := newTokens(t)
	w := start(t, withTokens(t, tokens))
	got := must[authn.IssuerDocument](w, 200, "GET", authn.IssuerPath, "", "")
	want := &authn.IssuerDocument{
		Issuer: "https://us", KeysURI: "https://192.0.2.1:6443/openid/v1/jwks",
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"}, Algorithms: []string{"ES256"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	rec := w.do("GET", authn.KeysPath, "", "")
	if h := rec.Header(); h.Get("Content-Type") != "application/jwk-set+json" || h.Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("headers %v", h)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(rec.Body.Bytes(), &set); err != nil || len(set.Keys) != 1 || !set.Keys[0].IsPublic() || !key.PublicKey.Equal(set.Keys[0].Key) {
		t.Errorf("keys %+v, %v", set, err)
	}
}

// Requests without credentials get health, version and, if a role allows it,
// the ConfigMap cluster-info.
func TestAnonymous(t *testing.T) {
	w := start(t, func(cfg *apiserver.Config) {
		cfg.Authenticator, cfg.Authn = nil, apiserver.Authentication{Anonymous: true}
	})
	for path, want := range map[string]int{
		"/healthz": 200, "/livez": 200, "/readyz": 200, "/version": 200,
		"/api": 401, "/apis": 401, "/openapi/v2": 401, "/metrics": 401, "/": 401, "/version/x": 401, "/openid/v1/jwks": 401,
		"/api/v1/namespaces/kube-public/configmaps/cluster-info":         404, // allowed, but it does not exist
		"/api/v1/namespaces/kube-public/configmaps/cluster-info2":        401,
		"/api/v1/namespaces/kube-public/configmaps":                      401,
		"/api/v1/namespaces/kube-public/configmaps/../configmaps/x":      401,
		"/api/v1/watch/namespaces/kube-public/configmaps/cluster-info":   401,
		"/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef":  401,
		"/api/v1/namespaces/kube-public/configmaps/cluster-info/proxy/x": 401,
	} {
		if rec := w.do("GET", path, "", ""); rec.Code != want {
			t.Errorf("%s: %d, want %d", path, rec.Code, want)
		}
	}
	if rec := w.do("GET", "/version", "", "", "Authorization", "Bearer nonsense"); rec.Code != 401 {
		t.Errorf("a bad token is nobody's: %d", rec.Code)
	}
}

func TestAuthenticationMetrics(t *testing.T) {
	w := start(t, func(cfg *apiserver.Config) {
		cfg.Authenticator = authn.Func(func(r *http.Request) (*request.User, error) {
			switch name := r.Header.Get("X-User"); name {
			case "":
				return asAdmin().Authenticate(r)
			case "nobody":
				return nil, nil
			case "bad":
				return nil, authn.ErrToken
			default:
				return &request.User{Name: name}, nil
			}
		})
	})
	for _, name := range []string{"nobody", "bad", "ann@example.com", "joe"} {
		w.do("GET", "/version", "", "", "X-User", name)
	}
	text := w.do("GET", "/metrics", "", "").Body.String()
	for _, want := range []string{
		`authenticated_user_requests{username="admin"} `, `authenticated_user_requests{username="email_id"} 1`, `authenticated_user_requests{username="other"} 1`,
		`authentication_attempts{result="failure"} 1`, `authentication_attempts{result="error"} 1`, `authentication_duration_seconds_count{result="success"} `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "ann@") {
		t.Error("the metrics tell names")
	}
}

// Each part of an impersonated identity needs its own permission.
func TestImpersonation(t *testing.T) {
	var asked []string
	allowed := map[string]bool{}
	w := start(t, func(cfg *apiserver.Config) {
		cfg.Authorizer = authz.Func(func(_ context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
			if strings.HasPrefix(info.Verb, "impersonate-on:") {
				return authz.NoOpinion, ""
			}
			if info.Verb != "impersonate" {
				return authz.Allow, ""
			}
			what := strings.Join(strings.Fields(strings.Join([]string{info.Group, info.Resource, info.Subresource, info.Namespace, info.Name}, " ")), " ")
			asked = append(asked, what)
			if user.Name == "helper" && allowed[what] {
				return authz.Allow, ""
			}
			return authz.NoOpinion, ""
		})
	})
	user := "users ann"
	for name, tc := range map[string]struct {
		header []string
		needs  []string
		want   authenticationv1.UserInfo
	}{
		"a user": {[]string{"Impersonate-User", "ann"}, []string{user}, authenticationv1.UserInfo{Username: "ann", Groups: []string{"system:authenticated"}}},
		"a service account": {
			[]string{"Impersonate-User", "system:serviceaccount:ns:robot"}, []string{"serviceaccounts ns robot"},
			authenticationv1.UserInfo{Username: "system:serviceaccount:ns:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}},
		},
		"anonymous": {
			[]string{"Impersonate-User", "system:anonymous"}, []string{"users system:anonymous"},
			authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}},
		},
		"everything": {
			[]string{"Impersonate-User", "ann", "Impersonate-Uid", "7", "Impersonate-Group", "ops", "Impersonate-Extra-Example.com%2fScopes", "view"},
			[]string{user, "groups ops", "authentication.k8s.io uids 7", "authentication.k8s.io userextras example.com/scopes view"},
			authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"ops", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"example.com/scopes": {"view"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			requestClientCertificates := func() *httptest.ResponseRecorder {
				asked = nil
				return w.do("POST", reviews+"selfsubjectreviews", jsonType, `{}`, append([]string{"X-User", "helper"}, tc.header...)...)
			}
			for _, missing := range tc.needs {
				clear(allowed)
				for _, n := range tc.needs {
					allowed[n] = n != missing
				}
				if rec := requestClientCertificates(); rec.Code != http.StatusForbidden {
					t.Errorf("without %s: %d", missing, rec.Code)
				}
			}
			for _, n := range tc.needs {
				allowed[n] = true
			}
			rec := requestClientCertificates()
			var got authenticationv1.SelfSubjectReview
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != 201 {
				t.Fatalf("%d %s (asked %q)", rec.Code, rec.Body, asked)
			}
			if diff := cmp.Diff(tc.want, got.Status.UserInfo); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The authentication ConfigMap is restored if its keys are edited; other keys
// are kept.
func TestWhatOtherServersLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ca atomic.Value
		ca.Store("first")
		w := start(t, func(cfg *apiserver.Config) {
			cfg.Authn.Published = func() map[string]string { return map[string]string{"client-ca-file": ca.Load().(string)} }
		})
		const path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
		check := func(want map[string]string) {
			t.Helper()
			got := must[corev1.ConfigMap](w, 200, "GET", path, "", "")
			if diff := cmp.Diff(want, got.Data); diff != "" {
				t.Error(diff)
			}
		}
		check(map[string]string{"client-ca-file": "first"})
		must[corev1.ConfigMap](w, 200, "PATCH", path, mergeType, `{"data":{"client-ca-file":"forged","note":"theirs"}}`)
		ca.Store("second")
		time.Sleep(time.Minute)
		check(map[string]string{"client-ca-file": "second", "note": "theirs"})
	})
}
