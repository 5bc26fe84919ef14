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

// The first use of a token on a day is reported, in the background.
func TestUseOfKeptTokenIsReported(t *testing.T) {
	key := newKey(t)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:sa",
		"kubernetes.io/serviceaccount/namespace":            "ns",
		"kubernetes.io/serviceaccount/secret.name":          "kept",
		"kubernetes.io/serviceaccount/service-account.name": "sa",
		"kubernetes.io/serviceaccount/service-account.uid":  "1",
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	tokens := newTokens(t, "https://us", key, time.Date(2026, 3, 4, 23, 30, 0, 0, time.FixedZone("", -3600)))
	for _, row := range []struct {
		reason string
		labels map[string]string
		ok     bool
		uses   int
	}{
		{"it was not used before", nil, true, 1},
		{"it was used yesterday", map[string]string{authn.LastUsed: "2026-03-04"}, true, 1},
		{"it was used today, in UTC", map[string]string{authn.LastUsed: "2026-03-05"}, true, 0},
		{"it is invalid: its use does not count", map[string]string{"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}, false, 0},
	} {
		have := objects{
			"serviceaccounts/ns/sa": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "1"}},
			"secrets/ns/kept":       &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: row.labels}, Data: map[string][]byte{"token": []byte(token)}},
		}
		_, err := tokens.AuthenticateToken(t.Context(), have, authn.Presented{Token: token, Audiences: []string{"https://us"}})
		if (err == nil) != row.ok {
			t.Errorf("%s: %v", row.reason, err)
		}
		if n := len(tokens.Uses()); n != row.uses {
			t.Errorf("%s: %d uses are reported, want %d", row.reason, n, row.uses)
		}
		for len(tokens.Uses()) > 0 {
			if use := <-tokens.Uses(); use != (authn.Use{Namespace: "ns", Secret: "kept"}) {
				t.Errorf("%s: %+v", row.reason, use)
			}
		}
	}
	have := objects{
		"serviceaccounts/ns/sa": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "1"}},
		"secrets/ns/kept":       &corev1.Secret{Data: map[string][]byte{"token": []byte(token)}},
	}
	for range 1000 { // nothing reads: authentication goes on
		if _, err := tokens.AuthenticateToken(t.Context(), have, authn.Presented{Token: token, Audiences: []string{"https://us"}}); err != nil {
			t.Fatal(err)
		}
	}
}
