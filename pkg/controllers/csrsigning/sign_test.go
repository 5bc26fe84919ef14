package csrsigning

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func authority(t *testing.T, end time.Time, isCA bool) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour), NotAfter: end,
		IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// greedy returns a request for a CA certificate.
func greedy(t *testing.T) *x509.CertificateRequest {
	t.Helper()
	constraints, err := asn1.Marshal(struct {
		IsCA bool `asn1:"optional"`
	}{true})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "ann", Organization: []string{"staff"}}, DNSNames: []string{"a"},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: constraints}},
	}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSign(t *testing.T) {
	ca := authority(t, now.Add(100*time.Hour), true)
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
	for name, row := range map[string]struct {
		life, end time.Duration
	}{
		"a long one is backdated at both ends": {10 * time.Hour, 10*time.Hour - 5*time.Minute},
		"a short one has its whole life":       {time.Hour, time.Hour},
		"none outlives its authority":          {1000 * time.Hour, 100 * time.Hour},
	} {
		text, err := sign(ca, greedy(t), usages, row.life, now)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !cert.NotBefore.Equal(now.Add(-5*time.Minute)) || !cert.NotAfter.Equal(now.Add(row.end)) {
			t.Errorf("%s: from %s to %s", name, cert.NotBefore, cert.NotAfter)
		}
		if cert.IsCA || cert.Subject.CommonName != "ann" || cert.DNSNames[0] != "a" || cert.KeyUsage != x509.KeyUsageDigitalSignature ||
			len(cert.ExtKeyUsage) != 1 || cert.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth || cert.SerialNumber.Sign() <= 0 {
			t.Errorf("%s: %+v", name, cert)
		}
		root, _ := x509.ParseCertificate(ca.Certificate[0])
		if err := cert.CheckSignatureFrom(root); err != nil {
			t.Error(err)
		}
	}
	for want, row := range map[string]struct {
		ca     *tls.Certificate
		usages []certificatesv1.KeyUsage
	}{
		"has expired":          {authority(t, now, true), usages},
		"not a CA":             {authority(t, now.Add(time.Hour), false), usages},
		`usage "code signing"`: {ca, []certificatesv1.KeyUsage{certificatesv1.UsageCodeSigning}},
	} {
		if _, err := sign(row.ca, greedy(t), row.usages, time.Hour, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestLifetime(t *testing.T) {
	const longest = 24 * time.Hour
	for name, row := range map[string]struct {
		asked *int32
		want  time.Duration
	}{
		"nothing asked": {nil, longest},
		"as asked":      {new(int32(3600)), time.Hour},
		"too long":      {new(int32(1 << 30)), longest},
		"too short":     {new(int32(1)), 10 * time.Minute},
	} {
		if got := lifetime(row.asked, longest); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}
