package authn_test

import (
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authn"
)

// A token in a Secret is valid exactly as long as the Secret contains it.
func TestTokensKeptInSecrets(t *testing.T) {
	key := newKey(t)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:sa",
		"kubernetes.io/serviceaccount/namespace":            "ns",
		"kubernetes.io/serviceaccount/secret.name":          "kept",
		"kubernetes.io/serviceaccount/service-account.name": "sa",
		"kubernetes.io/serviceaccount/service-account.uid":  "1",
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	tokens := newTokens(t, "https://us", key, now)
	gone := metav1.NewTime(now)
	for name, tc := range map[string]struct {
		secret    *corev1.Secret
		uid       string
		audiences []string
		ok        bool
	}{
		"kept":                   {&corev1.Secret{Data: map[string][]byte{"token": []byte(token)}}, "1", []string{"https://us"}, true},
		"no secret":              {nil, "1", []string{"https://us"}, false},
		"another token":          {&corev1.Secret{Data: map[string][]byte{"token": []byte("x")}}, "1", []string{"https://us"}, false},
		"secret is going":        {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &gone}, Data: map[string][]byte{"token": []byte(token)}}, "1", []string{"https://us"}, false},
		"unused for too long":    {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/legacy-token-invalid-since": "2025-01-01"}}, Data: map[string][]byte{"token": []byte(token)}}, "1", []string{"https://us"}, false},
		"the account made again": {&corev1.Secret{Data: map[string][]byte{"token": []byte(token)}}, "2", []string{"https://us"}, false},
		"for others":             {&corev1.Secret{Data: map[string][]byte{"token": []byte(token)}}, "1", []string{"vault"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			have := objects{"serviceaccounts/ns/sa": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "1"}}}
			have["serviceaccounts/ns/sa"].(*corev1.ServiceAccount).UID = "1"
			if tc.uid != "1" {
				have["serviceaccounts/ns/sa"].(*corev1.ServiceAccount).UID = "2"
			}
			if tc.secret != nil {
				have["secrets/ns/kept"] = tc.secret
			}
			who, err := tokens.AuthenticateToken(t.Context(), have, authn.Presented{Token: token, Audiences: tc.audiences})
			if (who != nil) != tc.ok || (err == nil) != tc.ok {
				t.Fatalf("%+v, %v", who, err)
			}
			if !tc.ok {
				return
			}
			want := []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}
			if diff := cmp.Diff(want, who.User.Groups); diff != "" || who.User.Name != "system:serviceaccount:ns:sa" {
				t.Errorf("%s %s", who.User.Name, diff)
			}
		})
	}
}
