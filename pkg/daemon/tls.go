package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"time"

	"podium/pkg/client/certfile"
)

// ClientCATLS is a serving configuration: TLS 1.2 and newer, the certificate
// and the authority read again when their files change. With a caFile, clients
// are asked for a certificate, and one they show must be the authority's; they
// may show none. Without certFile and keyFile the certificate is self-signed
// and lives in memory.
func ClientCATLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	if (certFile == "") != (keyFile == "") {
		return nil, errors.New("a serving certificate needs its key, and a key its certificate")
	}
	certificate, err := servingCertificate(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return certificate(), nil
		},
	}
	if caFile == "" {
		return cfg, nil
	}
	pool, err := certfile.NewPool(caFile)
	if err != nil {
		return nil, err
	}
	cfg.ClientAuth = tls.VerifyClientCertIfGiven
	cfg.ClientCAs = pool.Get()
	base := cfg.Clone()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		fresh := pool.Get()
		if fresh == base.ClientCAs {
			return nil, nil // the configuration at hand
		}
		c := base.Clone()
		c.ClientCAs = fresh
		return c, nil
	}
	return cfg, nil
}

func servingCertificate(certFile, keyFile string) (func() *tls.Certificate, error) {
	if certFile == "" {
		cert, err := selfSigned()
		return func() *tls.Certificate { return cert }, err
	}
	pair, err := certfile.NewPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return pair.Get, nil
}

// selfSignedFor is how long a certificate made at start is good: a daemon is
// started again before that.
const selfSignedFor = 365 * 24 * time.Hour

func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: host},
		DNSNames:     []string{host, "localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(selfSignedFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
