package csrsigning

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	backdate = 5 * time.Minute
	shortest = 10 * time.Minute // twice backdate
	// short is the lifetime below which backdating does not shorten the lifetime.
	short = 8 * time.Hour
)

// lifetime returns the lifetime of a certificate: the requested seconds within bounds, or
// longest if asked is nil.
func lifetime(asked *int32, longest time.Duration) time.Duration {
	if asked == nil {
		return longest
	}
	return min(max(time.Duration(*asked)*time.Second, shortest), longest)
}

// sign returns the certificate for a request, in PEM.
func sign(ca *tls.Certificate, r *x509.CertificateRequest, usages []certificatesv1.KeyUsage, life time.Duration, now time.Time) ([]byte, error) {
	authority, key, err := authorityOf(ca, now)
	if err != nil {
		return nil, err
	}
	// 126 random bits and never zero: unique, and positive in 16 bytes.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial.Add(serial, big.NewInt(1)),
		Subject:               r.Subject,
		DNSNames:              r.DNSNames,
		IPAddresses:           r.IPAddresses,
		EmailAddresses:        r.EmailAddresses,
		URIs:                  r.URIs,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(life - backdate),
		BasicConstraintsValid: true, // IsCA stays false, whatever was requested
	}
	if life < short {
		template.NotAfter = now.Add(life)
	}
	if template.NotAfter.After(authority.NotAfter) {
		template.NotAfter = authority.NotAfter
	}
	if template.KeyUsage, template.ExtKeyUsage, err = usagesOf(usages); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, r.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func authorityOf(ca *tls.Certificate, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	cert, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		return nil, nil, fmt.Errorf("the signing certificate: %w", err)
	}
	key, ok := ca.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, nil, fmt.Errorf("the signing key is a %T, which cannot sign", ca.PrivateKey)
	case !cert.IsCA:
		return nil, nil, errors.New("the signing certificate is not a CA")
	case !cert.NotAfter.After(now):
		return nil, nil, fmt.Errorf("the signer has expired: NotAfter=%s", cert.NotAfter)
	}
	return cert, key, nil
}

// usagesOf converts the key usages of the API to those of X.509.
func usagesOf(words []certificatesv1.KeyUsage) (x509.KeyUsage, []x509.ExtKeyUsage, error) {
	var usage x509.KeyUsage
	var extended []x509.ExtKeyUsage
	for _, w := range words {
		switch w {
		case certificatesv1.UsageDigitalSignature:
			usage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			usage |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
			extended = append(extended, x509.ExtKeyUsageClientAuth)
		case certificatesv1.UsageServerAuth:
			extended = append(extended, x509.ExtKeyUsageServerAuth)
		default: // the signers' rules allow no other
			return 0, nil, fmt.Errorf("unrecognized usage %q", w)
		}
	}
	return usage, extended, nil
}
