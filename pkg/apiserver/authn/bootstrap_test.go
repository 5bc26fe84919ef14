package authn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/bootstraptoken"
)

func TestBootstrapTokens(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := bootstraptoken.Spec{
		Token: bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"}, Expires: now.Add(time.Hour),
		Groups: []string{"system:bootstrappers:worker"}, Usages: []string{bootstraptoken.Authentication},
	}
	tokens := authn.ForServer([]string{"https://us"}, authn.BootstrapTokens(func() time.Time { return now }))
	for name, tc := range map[string]struct {
		token     string
		change    func(*bootstraptoken.Spec, *corev1.Secret)
		audiences []string
		ok, known bool
	}{
		"good":                      {token: "abcdef.0123456789abcdef", ok: true, known: true},
		"of no token's form":        {token: "abc.def"},
		"a wrong secret":            {token: "abcdef.0123456789abcdee", known: true},
		"an unknown id":             {token: "zzzzzz.0123456789abcdef", known: true},
		"expired":                   {token: "abcdef.0123456789abcdef", known: true, change: func(s *bootstraptoken.Spec, _ *corev1.Secret) { s.Expires = now }},
		"not for authentication":    {token: "abcdef.0123456789abcdef", known: true, change: func(s *bootstraptoken.Spec, _ *corev1.Secret) { s.Usages = []string{bootstraptoken.Signing} }},
		"groups it may not have":    {token: "abcdef.0123456789abcdef", known: true, change: func(s *bootstraptoken.Spec, _ *corev1.Secret) { s.Groups = []string{"system:masters"} }},
		"for other audiences":       {token: "abcdef.0123456789abcdef", audiences: []string{"vault"}},
		"a secret of another type":  {token: "abcdef.0123456789abcdef", known: true, change: func(_ *bootstraptoken.Spec, s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }},
		"a secret without a secret": {token: "abcdef.0123456789abcdef", known: true, change: func(_ *bootstraptoken.Spec, s *corev1.Secret) { s.Data = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			spec := good
			if tc.change != nil {
				tc.change(&spec, &corev1.Secret{})
			}
			secret := spec.ToSecret()
			if tc.change != nil {
				tc.change(&bootstraptoken.Spec{}, secret)
			}
			if tc.audiences == nil {
				tc.audiences = []string{"https://us"}
			}
			who, err := tokens.AuthenticateToken(t.Context(), objects{"secrets/kube-system/bootstrap-token-abcdef": secret}, authn.Presented{Token: tc.token, Audiences: tc.audiences})
			if (who != nil) != tc.ok || (err != nil) != (tc.known && !tc.ok) {
				t.Fatalf("%+v, %v", who, err)
			}
			if err != nil && (strings.Contains(err.Error(), "0123456789") || err.Error() != "invalid bootstrap token") {
				t.Errorf("a guesser learns: %v", err)
			}
			if !tc.ok {
				return
			}
			want := &request.User{Name: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:bootstrappers:worker", "system:authenticated"}}
			if diff := cmp.Diff(want, who.User); diff != "" {
				t.Error(diff)
			}
		})
	}
}
