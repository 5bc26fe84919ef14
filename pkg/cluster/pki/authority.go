package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
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
	"slices"
	"time"

	"podium/pkg/cluster/files"
)

// Lifetimes of certificates.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// backdate makes certificates valid at once on a host whose clock is
	// slightly behind.
	backdate = 5 * time.Minute
)

// Authority is a certificate authority (CA) whose files are NAME.crt and
// NAME.key in a directory.
type Authority struct {
	Cert    *x509.Certificate
	key     crypto.Signer // nil: the key is not on this machine
	keyFile string
	now     func() time.Time
}

// Identity is the subject of a certificate and its usage. With Hosts it is a
// server certificate, otherwise a client certificate.
type Identity struct {
	Name   string   // common name: the user name
	Groups []string // organizations: the user's groups
	Hosts  []string // DNS names and IP addresses
	// Both makes a server certificate valid for client authentication too. Only
	// etcd needs that: its members are clients of each other.
	Both bool
}

// usages returns the extended key usages that the identity needs, and no
// others: a server certificate must not authenticate a user.
func (id Identity) usages() []x509.ExtKeyUsage {
	switch {
	case id.Both:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	case len(id.Hosts) > 0:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
}

// OpenAuthority reads the CA with that name in dir, or creates it if it has no
// certificate. It never replaces a certificate: a CA whose key is kept
// elsewhere cannot sign, but Issue keeps what it has signed. now is the clock
// for the validity of certificates.
func OpenAuthority(dir, name string, now func() time.Time) (*Authority, error) {
	certFile, keyFile := Files(dir, name)
	cert, key, err := readPair(certFile, keyFile)
	absent := errors.Is(err, fs.ErrNotExist)
	if err == nil || cert != nil && absent {
		return &Authority{Cert: cert, key: key, keyFile: keyFile, now: now}, nil
	}
	if !absent {
		return nil, err
	}
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of authority %s: %w", name, err)
	}
	return newAuthority(dir, name, key, now)
}

// newAuthority creates and writes a self-signed CA with this key.
func newAuthority(dir, name string, key crypto.Signer, now func() time.Time) (*Authority, error) {
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
	certFile, keyFile := Files(dir, name)
	if err := writePair(certFile, keyFile, der, key); err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the new authority %s: %w", name, err)
	}
	return &Authority{Cert: cert, key: key, keyFile: keyFile, now: now}, nil
}

// signer returns the CA's key, or an error if it is kept elsewhere.
func (a *Authority) signer() (crypto.Signer, error) {
	if a.key == nil {
		return nil, fmt.Errorf("the key of authority %s is not in %s, and no other key can sign for it: put it back there, and run this again", a.Cert.Subject.CommonName, a.keyFile)
	}
	return a.key, nil
}

// Derive opens the CA with that name in dir, or creates it with a key that is
// derived from a's. Machines that share a's key thus create the same CA without
// communicating, as an upgrade needs, which changes one machine at a time.
// Their CA certificates differ in the serial number, and each verifies what any
// of them has signed.
func (a *Authority) Derive(dir, name string) (*Authority, error) {
	certFile, _ := Files(dir, name)
	if _, err := os.Stat(certFile); !errors.Is(err, fs.ErrNotExist) {
		return OpenAuthority(dir, name, a.now)
	}
	own, err := a.signer()
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, fmt.Errorf("encode the key of %s: %w", a.Cert.Subject.CommonName, err)
	}
	key, err := deriveKey(secret, "podium authority "+name)
	if err != nil {
		return nil, fmt.Errorf("derive the key of authority %s: %w", name, err)
	}
	return newAuthority(dir, name, key, a.now)
}

// deriveKey derives a P-256 key from a secret. It skips candidates that are not
// a valid scalar (fewer than one in 2^32).
func deriveKey(secret []byte, purpose string) (*ecdsa.PrivateKey, error) {
	const size = 32
	stream, err := hkdf.Key(sha256.New, secret, nil, purpose, 8*size)
	if err != nil {
		return nil, err
	}
	for candidate := range slices.Chunk(stream, size) {
		var key *ecdsa.PrivateKey
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), candidate); err == nil {
			return key, nil
		}
	}
	return nil, err
}

// Signed reports whether the CA has signed a certificate. It does not check the
// validity period.
func (a *Authority) Signed(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(a.Cert) == nil
}

// ReadCertificate reads the first certificate of the pair with that name in
// dir.
func ReadCertificate(dir, name string) (*x509.Certificate, error) {
	certFile, _ := Files(dir, name)
	data, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	certs, err := ParseCertificates(data)
	if err == nil && len(certs) == 0 {
		err = errors.New("it holds no certificate")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	return certs[0], nil
}

// WriteBundle writes the CAs' certificates to file, as a bundle of trusted CAs.
func WriteBundle(file string, authorities ...*Authority) error {
	var bundle []byte
	for _, a := range authorities {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})...)
	}
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, bundle) {
		return nil
	}
	_, err := files.Write(file, bundle, 0o644)
	return err
}

// Issue makes sure that dir has NAME.crt and NAME.key for an identity, signed
// by this CA. It keeps a pair that matches the identity and has more than a
// third of its lifetime left, and replaces any other.
func (a *Authority) Issue(dir, name string, id Identity) error {
	certFile, keyFile := Files(dir, name)
	if cert, _, err := readPair(certFile, keyFile); err == nil && a.fits(cert, id) {
		return nil
	}
	return a.Renew(dir, name, id)
}

// Renew is Issue, but always replaces the pair.
func (a *Authority) Renew(dir, name string, id Identity) error {
	signer, err := a.signer()
	if err != nil {
		return fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: id.Name, Organization: id.Groups},
		NotBefore:   a.now().Add(-backdate),
		NotAfter:    a.now().Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: id.usages(),
	}
	for _, host := range id.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := sign(template, a.Cert, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	certFile, keyFile := Files(dir, name)
	return writePair(certFile, keyFile, der, key)
}

// fits reports whether Issue may keep a certificate. The certificate may have
// more hosts than the identity.
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
	if !slices.Equal(slices.Sorted(slices.Values(cert.ExtKeyUsage)), slices.Sorted(slices.Values(id.usages()))) {
		return false
	}
	for _, host := range id.Hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// sameStrings compares two lists regardless of order.
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

// sign sets a random serial number and returns the signed certificate in DER
// format.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	return x509.CreateCertificate(rand.Reader, template, parent, public, by)
}

// Files returns the paths of a certificate and its key.
func Files(dir, name string) (certFile, keyFile string) {
	return filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
}

// SigningKey makes sure that dir has NAME.key and NAME.pub, the key pair that
// signs and verifies service account tokens. It keeps an existing key.
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

// readPair reads a certificate and its key. It does not check that they match.
// With an error of the key it also returns the certificate.
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

// readKey reads a private key in PKCS #8 format.
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

// writePair writes the key first: an interrupted call leaves a key without a
// certificate, which the next call replaces.
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

// writePEM replaces file atomically.
func writePEM(file, kind string, der []byte, mode os.FileMode) error {
	_, err := files.Write(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
	return err
}
