package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"podium/pkg/apiserver/request"
	"podium/pkg/client/revocation"
)

// CertificateConfig configures the verification of client certificates.
type CertificateConfig struct {
	Roots   func() *x509.CertPool   // the current CAs
	Revoked func() *revocation.List // nil: no revocation lists
	Now     func() time.Time        // nil: time.Now
}

// Certificates authenticates users by client certificates: the common name is
// the user, the organizations are the groups. It verifies the certificate with
// each request instead of in the TLS handshake, so that a certificate that is
// revoked, or whose CA is no longer trusted, stops working on open connections
// as well.
func Certificates(cfg CertificateConfig) Authenticator {
	c := newVerifier(cfg)
	return Func(func(r *http.Request) (*request.User, error) {
		v, err := c.verify(r)
		if v == nil || err != nil {
			return nil, err
		}
		return v.user, nil
	})
}

// verifier verifies client certificates and caches valid ones, since a client
// sends the same certificate with every request of a connection. It is safe for
// concurrent use.
type verifier struct {
	cfg  CertificateConfig
	memo memo[*x509.CertPool, *verified]
}

// verified is a certificate with a valid chain.
type verified struct {
	chain []*x509.Certificate
	until time.Time
	user  *request.User // nil: the certificate has no common name
}

func newVerifier(cfg CertificateConfig) *verifier {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Revoked == nil {
		cfg.Revoked = func() *revocation.List { return nil }
	}
	return &verifier{cfg: cfg}
}

var errRevoked = errors.New("the client certificate has been revoked")

// verify verifies the certificate of a request and records it for the closing
// of connections with revoked ones. It returns nil for a request without a
// certificate.
func (c *verifier) verify(r *http.Request) (*verified, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	shown := r.TLS.PeerCertificates
	v, err := c.verified(shown)
	if err != nil {
		return nil, err
	}
	revocation.Note(r.Context(), v.chain)
	if c.cfg.Revoked().Any(v.chain) {
		return nil, errRevoked
	}
	return v, nil
}

// verified verifies a certificate chain, leaf first, or returns the cached
// result.
func (c *verifier) verified(shown []*x509.Certificate) (*verified, error) {
	h := sha256.New()
	for _, cert := range shown {
		h.Write(cert.Raw)
	}
	id := fingerprint(h.Sum(nil))
	roots, now := c.cfg.Roots(), c.cfg.Now()
	if v, ok := c.memo.get(roots, id); ok && now.Before(v.until) {
		return v, nil
	}
	v, err := verifyChain(shown, roots, now)
	if err != nil {
		return nil, err
	}
	c.memo.put(roots, id, v)
	return v, nil
}

// verifyChain verifies shown[0] with the other certificates as intermediates.
// The result is valid until the first certificate of the chain expires.
func verifyChain(shown []*x509.Certificate, roots *x509.CertPool, now time.Time) (*verified, error) {
	between := x509.NewCertPool()
	for _, cert := range shown[1:] {
		between.AddCert(cert)
	}
	chains, err := shown[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("verify the client certificate: %w", err)
	}
	v := &verified{chain: chains[0], user: certificateUser(shown[0])}
	for i, cert := range v.chain {
		if i == 0 || cert.NotAfter.Before(v.until) {
			v.until = cert.NotAfter
		}
	}
	return v, nil
}

// uidAttribute is the subject attribute that may contain the user's UID.
func uidAttribute() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}
}

// certificateUser returns the user that a certificate names, nil if it has no
// common name.
func certificateUser(cert *x509.Certificate) *request.User {
	if cert.Subject.CommonName == "" {
		return nil
	}
	sum := sha256.Sum256(cert.Raw)
	u := &request.User{
		Name:   cert.Subject.CommonName,
		Groups: append(slices.Clone(cert.Subject.Organization), Authenticated),
		Extra:  map[string][]string{extraCredential: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}
	for _, name := range cert.Subject.Names {
		if uid, ok := name.Value.(string); ok && name.Type.Equal(uidAttribute()) {
			u.UID = uid
		}
	}
	return u
}
