package authn_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authn"
)

// BenchmarkCertificate measures authentication by client certificate.
func BenchmarkCertificate(b *testing.B) {
	a := newAuthority(b, "ca")
	roots := a.pool()
	check := authn.Certificates(authn.CertificateConfig{Roots: func() *x509.CertPool { return roots }})
	r := shown(a.issue(pkix.Name{CommonName: "ann"}, time.Hour))
	for b.Loop() {
		if user, err := check.Authenticate(r); user == nil || err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToken(b *testing.B) {
	now := time.Now()
	tokens := newTokens(b, "https://us", newKey(b), now)
	token, err := tokens.SignToken(b.Context(), authn.Claims{
		Namespace: "ns", ServiceAccount: authn.Ref{Name: "sa", UID: "1"}, Audiences: []string{"https://us"}, IssuedAt: now, Expires: now.Add(time.Hour),
	})
	if err != nil {
		b.Fatal(err)
	}
	have := objects{"serviceaccounts/ns/sa": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "1"}}}
	check := authn.Bearer(tokens, have, tokens.Audiences())
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	for b.Loop() {
		if user, err := check.Authenticate(r); user == nil || err != nil {
			b.Fatal(err)
		}
	}
}
