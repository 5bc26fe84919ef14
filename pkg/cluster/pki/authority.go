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

// Identity is the subject of a certificate and what it may be used for. With
// Hosts it is a server's certificate, without a client's; one that is both
// says so.
type Identity struct {
	Name   string   // common name: the user
	Groups []string // organizations
	Hosts  []string // DNS names and IP addresses
	// Both lets a server's certificate also authenticate a client. Only etcd
	// needs that: its members are clients of each other.
	Both bool
}

// usages are the extended key usages that the identity needs, and no others: a
// server's certificate must not log in as a user.
func (id Identity) usages() []x509.ExtKeyUsage {
	switch {
	case id.Both:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	case len(id.Hosts) > 0:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
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
	return newAuthority(dir, name, key, now)
}

// newAuthority writes an authority of this key.
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
	return &Authority{Cert: cert, key: key, now: now}, nil
}

// Derive opens the authority kept in dir under name, or makes it with a key
// that follows from a's. Machines that share a's key thereby come to the same
// authority without speaking to each other, which an upgrade needs that has
// only one machine at a time at its disposal: their certificates of it differ
// in the serial number, and each verifies what any of them has signed.
func (a *Authority) Derive(dir, name string) (*Authority, error) {
	certFile, _ := Files(dir, name)
	if _, err := os.Stat(certFile); !errors.Is(err, fs.ErrNotExist) {
		return OpenAuthority(dir, name, a.now)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of %s: %w", a.Cert.Subject.CommonName, err)
	}
	key, err := deriveKey(secret, "podium authority "+name)
	if err != nil {
		return nil, fmt.Errorf("derive the key of authority %s: %w", name, err)
	}
	return newAuthority(dir, name, key, a.now)
}

// deriveKey makes a P-256 key of a secret. A candidate that is no valid scalar
// (fewer than one in 2^32) makes room for the next.
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

// Signed says whether the authority has signed a certificate.
func (a *Authority) Signed(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(a.Cert) == nil
}

// ReadCertificate reads the first certificate of the pair kept in dir under
// name.
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

// WriteBundle makes file hold the certificates of these authorities: those that
// a verifier trusts.
func WriteBundle(file string, authorities ...*Authority) error {
	var bundle []byte
	for _, a := range authorities {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})...)
	}
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, bundle) {
		return nil
	}
	return replaceFile(file, bundle, 0o644)
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
		ExtKeyUsage: id.usages(),
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
	return replaceFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

func replaceFile(file string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	next := file + ".new"
	if err := os.WriteFile(next, data, mode); err != nil {
		return err
	}
	return os.Rename(next, file)
}
