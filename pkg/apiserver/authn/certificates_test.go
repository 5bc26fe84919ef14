package authn_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/revocation"
)

// authority is a CA that signs and revokes certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t testing.TB, name string) *authority {
	a := &authority{t: t, key: newKey(t), next: 1}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, // not for signing lists, as in many clusters
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(100 * 365 * 24 * time.Hour),
	}
	a.cert = a.sign(template, template, a.key.Public())
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, key crypto.PublicKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func (a *authority) issue(subject pkix.Name, life time.Duration) *x509.Certificate {
	a.next++
	return a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert, newKey(a.t).Public())
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// list returns a PEM revocation list.
func (a *authority) list(revoked ...*x509.Certificate) []byte {
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, cert := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: cert.SerialNumber, RevocationTime: time.Now()})
	}
	issuer := *a.cert
	issuer.KeyUsage |= x509.KeyUsageCRLSign
	der, err := x509.CreateRevocationList(rand.Reader, template, &issuer, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

func shown(certs ...*x509.Certificate) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: certs}
	return r
}

func TestCertificates(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	now := time.Now()
	ann := ours.issue(pkix.Name{CommonName: "ann", Organization: []string{"ops", "dev"}}, time.Hour)
	leaked := ours.issue(pkix.Name{CommonName: "bob"}, time.Hour)
	numbered := ours.issue(pkix.Name{CommonName: "eve", ExtraNames: []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "42"},
	}}, time.Hour)
	serving := ours.sign(&x509.Certificate{
		SerialNumber: big.NewInt(99), Subject: pkix.Name{CommonName: "server"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ours.cert, newKey(t).Public())
	// Revoking a serial number of another CA has no effect on this one.
	revoked, err := revocation.Parse(append(ours.list(leaked), theirs.list(ann)...), []*x509.Certificate{ours.cert, theirs.cert})
	if err != nil {
		t.Fatal(err)
	}
	roots := ours.pool()
	check := authn.Certificates(authn.CertificateConfig{
		Roots: func() *x509.CertPool { return roots }, Revoked: func() *revocation.List { return revoked }, Now: func() time.Time { return now },
	})
	credential := func(c *x509.Certificate) map[string][]string {
		sum := sha256.Sum256(c.Raw)
		return map[string][]string{"authentication.kubernetes.io/credential-id": {"X509SHA256=" + hex.EncodeToString(sum[:])}}
	}
	for name, tc := range map[string]struct {
		r    *http.Request
		want *request.User
		bad  bool
	}{
		"ours":           {shown(ann), &request.User{Name: "ann", Groups: []string{"dev", "ops", "system:authenticated"}, Extra: credential(ann)}, false},
		"ours, with UID": {shown(numbered), &request.User{Name: "eve", UID: "42", Groups: []string{"system:authenticated"}, Extra: credential(numbered)}, false},
		"revoked":        {shown(leaked), nil, true},
		"of others":      {shown(theirs.issue(pkix.Name{CommonName: "ann"}, time.Hour)), nil, true},
		"expired":        {shown(ours.issue(pkix.Name{CommonName: "ann"}, -time.Minute)), nil, true},
		"for servers":    {shown(serving), nil, true},
		"nobody's":       {shown(ours.issue(pkix.Name{}, time.Hour)), nil, false},
		"none":           {shown(), nil, false},
		"no TLS":         {httptest.NewRequest("GET", "/", nil), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time from the cache
				got, err := check.Authenticate(tc.r)
				if (err != nil) != tc.bad {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	t.Run("what was good ends", func(t *testing.T) {
		now = now.Add(2 * time.Hour)
		if user, err := check.Authenticate(shown(ann)); user != nil || err == nil {
			t.Errorf("expired in the meantime: %v", user)
		}
		now = now.Add(-2 * time.Hour)
		roots = theirs.pool()
		if user, err := check.Authenticate(shown(ann)); user != nil || err == nil {
			t.Errorf("the authority is trusted no longer: %v", user)
		}
	})
}
