package csr_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	"podium/pkg/client/csr"
)

func request(t testing.TB, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// FuzzParse feeds arbitrary requests and certificate chains to the parsers: they
// return an error or a parsed value.
func FuzzParse(f *testing.F) {
	f.Add(request(f, "system:node:a"))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nA: b\n\nMAA=\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := csr.Parse(text); err == nil {
			_ = r.CheckSignature() // either will do
		}
		if chain, err := csr.ParseChain(text); err == nil && len(chain) == 0 {
			t.Error("no error and no certificate")
		}
	})
}
