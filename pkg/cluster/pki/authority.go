package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// How long certificates live.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// backdate lets a host whose clock is a little behind use a certificate at once.
	backdate = 5 * time.Minute
)

// Authority is a certificate authority in a folder: NAME.crt and NAME.key.
type Authority struct {
	Cert *x509.Certificate
	key  crypto.Signer
	now  func() time.Time
}

// Identity says whom a certificate is for. With Hosts (DNS names and IP
// addresses) it may serve; every certificate may be used as a client's.
type Identity struct {
	Name   string   // common name: the user
	Groups []string // organizations
	Hosts  []string
}

// OpenAuthority reads the authority kept in dir under name, or makes it. now
// is the clock that validity is counted from.
func OpenAuthority(dir, name string, now func() time.Time) (*Authority, error) {
	certFile, keyFile := Files(dir, name)
	cert, key, err := readPair(certFile, keyFile)
	if err == nil {
		return &Authority{Cert: cert, key: key, now: now}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of authority %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now().Add(-backdate),
		NotAfter:              now().Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	if err := writePair(certFile, keyFile, der, key); err != nil {
		return nil, err
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("parse the new authority %s: %w", name, err)
	}
	return &Authority{Cert: cert, key: key, now: now}, nil
}

// Issue makes sure that dir holds NAME.crt and NAME.key for an identity,
// signed by this authority. A pair that still fits and has more than a third
// of its life before it stays; anything else is replaced.
func (a *Authority) Issue(dir, name string, id Identity) error {
	certFile, keyFile := Files(dir, name)
	if cert, _, err := readPair(certFile, keyFile); err == nil && a.fits(cert, id) {
		return nil
	}
	return a.Renew(dir, name, id)
}

// Renew is Issue for a pair that is to be replaced even if it fits.
func (a *Authority) Renew(dir, name string, id Identity) error {
	certFile, keyFile := Files(dir, name)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: id.Name, Organization: id.Groups},
		NotBefore:   a.now().Add(-backdate),
		NotAfter:    a.now().Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(id.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range id.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := sign(template, a.Cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	return writePair(certFile, keyFile, der, key)
}

func (a *Authority) fits(cert *x509.Certificate, id Identity) bool {
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: a.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil || cert.NotAfter.Sub(a.now()) < leafLife/3 {
		return false
	}
	if cert.Subject.CommonName != id.Name || !sameStrings(cert.Subject.Organization, id.Groups) {
		return false
	}
	for _, host := range id.Hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

func sameStrings(a, b []string) bool {
	seen := map[string]int{}
	for _, s := range a {
		seen[s]++
	}
	for _, s := range b {
		seen[s]--
	}
	for _, n := range seen {
		if n != 0 {
			return false
		}
	}
	return true
}

// sign fills in what every certificate has and signs it.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	return x509.CreateCertificate(rand.Reader, template, parent, public, by)
}

// Files are the paths of a certificate and its key.
func Files(dir, name string) (certFile, keyFile string) {
	return filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
}

// SigningKey makes sure that dir holds NAME.key and NAME.pub, the key pair that
// signs and checks service account tokens.
func SigningKey(dir, name string) error {
	keyFile, pubFile := filepath.Join(dir, name+".key"), filepath.Join(dir, name+".pub")
	key, err := readKey(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err == nil {
			err = writeKey(keyFile, key)
		}
	}
	if err != nil {
		return fmt.Errorf("token signing key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode public key of %s: %w", name, err)
	}
	return writePEM(pubFile, "PUBLIC KEY", der, 0o644)
}

func readPair(certFile, keyFile string) (*x509.Certificate, crypto.Signer, error) {
	data, err := os.ReadFile(certFile)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, nil, fmt.Errorf("%s holds no PEM block", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: %w", certFile, err)
	}
	key, err := readKey(keyFile)
	return cert, key, err
}

func readKey(file string) (crypto.Signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", file)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, which cannot sign", file, key)
	}
	return signer, nil
}

// writePair writes the key first: a certificate without its key would be
// taken for a whole pair by nobody, but a key alone is simply replaced.
func writePair(certFile, keyFile string, der []byte, key crypto.Signer) error {
	if err := writeKey(keyFile, key); err != nil {
		return err
	}
	return writePEM(certFile, "CERTIFICATE", der, 0o644)
}

func writeKey(file string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key for %s: %w", file, err)
	}
	return writePEM(file, "PRIVATE KEY", der, 0o600)
}

// writePEM replaces file in one step, so that a reader never sees half of it.
func writePEM(file, kind string, der []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	next := file + ".new"
	if err := os.WriteFile(next, data, mode); err != nil {
		return err
	}
	return os.Rename(next, file)
}
