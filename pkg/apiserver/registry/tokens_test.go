package registry_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// The bound object, the lifetime and the audiences of a token, as requested and as
// granted.
func TestWhatATokenSays(t *testing.T) {
	b := holding(map[string][]scheme.Object{
		"serviceaccounts": {account("robot", nil)},
		"secrets":         {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lock", UID: "lock-uid"}}},
		"nodes":           {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}},
	})
	to := func(kind, name string) *authenticationv1.BoundObjectReference {
		return &authenticationv1.BoundObjectReference{Kind: kind, APIVersion: "v1", Name: name}
	}
	plain := authn.Claims{
		Namespace: "ns", ServiceAccount: authn.Ref{Name: "robot", UID: "uid-of-robot"},
		Audiences: []string{"api"}, IssuedAt: today, Expires: today.Add(time.Hour),
	}
	for name, tc := range map[string]struct {
		most    time.Duration
		spec    authenticationv1.TokenRequestSpec
		change  func(*authn.Claims)
		warning string
	}{
		"nothing asked for":  {spec: authenticationv1.TokenRequestSpec{}},
		"bound to a node":    {spec: authenticationv1.TokenRequestSpec{BoundObjectRef: to("Node", "n")}, change: func(c *authn.Claims) { c.Node = &authn.Ref{Name: "n", UID: "node-uid"} }},
		"bound to a secret":  {spec: authenticationv1.TokenRequestSpec{BoundObjectRef: to("Secret", "lock")}, change: func(c *authn.Claims) { c.Secret = &authn.Ref{Name: "lock", UID: "lock-uid"} }},
		"for others":         {spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault", "mail"}}, change: func(c *authn.Claims) { c.Audiences = []string{"vault", "mail"} }},
		"for a day":          {spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(86400))}, change: func(c *authn.Claims) { c.Expires = today.Add(24 * time.Hour) }},
		"longer than may be": {most: 2 * time.Hour, spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(86400))}, change: func(c *authn.Claims) { c.Expires = today.Add(2 * time.Hour) }, warning: "requested expiration of 86400 seconds shortened to 7200 seconds"},
		"as long as may be":  {most: time.Hour, spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &signer{}
			r := newRig(t, "10.0.0.0/24", somePorts)
			r.cfg.Tokens, r.cfg.TokenAudiences, r.cfg.MaxTokenLife = s, []string{"api"}, tc.most
			var token *registry.Subresource
			for _, k := range registry.Kinds(r.scheme, r.cfg) {
				if k.Resource == "serviceaccounts" {
					token = subresource(t, k, "token")
				}
			}
			header := http.Header{}
			ctx := request.With(t.Context(), request.New(request.Info{}, header))
			out, err := token.Act(ctx, b, "ns", "robot", &authenticationv1.TokenRequest{Spec: tc.spec}, &metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := plain
			want.ID = s.claims.ID
			if tc.change != nil {
				tc.change(&want)
			}
			if diff := cmp.Diff(want, s.claims); diff != "" {
				t.Error(diff)
			}
			got := out.(*authenticationv1.TokenRequest)
			if !got.Status.ExpirationTimestamp.Time.Equal(want.Expires) || *got.Spec.ExpirationSeconds != int64(want.Expires.Sub(today).Seconds()) {
				t.Errorf("answered %+v", got)
			}
			if w := header.Get("Warning"); (w != "") != (tc.warning != "") || !strings.Contains(w, tc.warning) {
				t.Errorf("warned %q, want %q", w, tc.warning)
			}
		})
	}
}
