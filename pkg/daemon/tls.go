package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"podium/pkg/client/certfile"
)

// Serving configures a server's certificate and the authentication of clients by
// certificate. Files are reloaded when they change.
type Serving struct {
	CertFile, KeyFile string // empty: self-signed, in memory
	// Certificate, if not nil, is used instead of the files and called for each handshake.
	Certificate func() (*tls.Certificate, error)
	// ClientCA is the file of the CA of client certificates. The server then requests
	// a certificate; it is optional, but must be signed by the CA. If empty, the
	// server requests none.
	ClientCA string

	MinVersion   string   // VersionTLS12 (default) or VersionTLS13
	CipherSuites []string // of TLS 1.2, by name; empty: the modern ones
}

// AddClientCA registers the flag of the client CA with the given usage text.
func (s *Serving) AddClientCA(fs *pflag.FlagSet, usage string) {
	fs.StringVar(&s.ClientCA, "client-ca-file", "", usage)
}

// AddFlags registers the other flags.
func (s *Serving) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.CertFile, "tls-cert-file", "", "file with the serving certificate; default: self-signed, in memory")
	fs.StringVar(&s.KeyFile, "tls-private-key-file", "", "file with the serving certificate's key")
	fs.StringVar(&s.MinVersion, "tls-min-version", minVersion, "minimum TLS version: VersionTLS12 or VersionTLS13")
	fs.StringSliceVar(&s.CipherSuites, "tls-cipher-suites", nil, "cipher suites of TLS 1.2, by name (those of TLS 1.3 cannot be chosen); default: those with forward secrecy and authenticated encryption: "+strings.Join(suiteNames(), ","))
}

const minVersion = "VersionTLS12"

// TLS returns the serving configuration, or an error if the settings are invalid.
func (s *Serving) TLS() (*tls.Config, error) {
	if (s.CertFile == "") != (s.KeyFile == "") {
		return nil, errors.New("a serving certificate needs its key, and a key its certificate: --tls-cert-file, --tls-private-key-file")
	}
	certificate := s.Certificate
	if certificate == nil {
		present, err := servingCertificate(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, err
		}
		certificate = func() (*tls.Certificate, error) { return present(), nil }
	}
	cfg := &tls.Config{
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
	}
	var err error
	if cfg.MinVersion, err = oldestTLS(s.MinVersion); err != nil {
		return nil, err
	}
	if cfg.CipherSuites, err = suites(s.CipherSuites, cfg.MinVersion); err != nil {
		return nil, err
	}
	if s.ClientCA == "" {
		return cfg, nil
	}
	pool, err := certfile.NewPool(s.ClientCA)
	if err != nil {
		return nil, err
	}
	cfg.ClientAuth = tls.VerifyClientCertIfGiven
	cfg.ClientCAs = pool.Get()
	base := cfg.Clone()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		fresh := pool.Get()
		if fresh == base.ClientCAs {
			return nil, nil // nil selects the enclosing configuration
		}
		c := base.Clone()
		c.ClientCAs = fresh
		return c, nil
	}
	return cfg, nil
}

func oldestTLS(name string) (uint16, error) {
	switch name {
	case "", minVersion:
		return tls.VersionTLS12, nil
	case "VersionTLS13":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("--tls-min-version %q: want VersionTLS12 or VersionTLS13", name)
}

// modern returns the TLS 1.2 cipher suites with forward secrecy and authenticated
// encryption.
func modern() []*tls.CipherSuite {
	return slices.DeleteFunc(tls.CipherSuites(), func(c *tls.CipherSuite) bool {
		return !slices.Contains(c.SupportedVersions, tls.VersionTLS12) || strings.HasSuffix(c.Name, "_CBC_SHA")
	})
}

func suiteNames() (names []string) {
	for _, c := range modern() {
		names = append(names, c.Name)
	}
	return names
}

// suites returns the ids of the named suites. Like upstream, it accepts old names without
// the hash at the end.
func suites(names []string, oldest uint16) ([]uint16, error) {
	known := map[string]uint16{}
	var ids []uint16
	for _, c := range modern() {
		known[c.Name], known[strings.TrimSuffix(c.Name, "_SHA256")] = c.ID, c.ID
		ids = append(ids, c.ID)
	}
	if len(names) == 0 {
		return ids, nil
	}
	ids = nil
	for _, name := range names {
		id, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("--tls-cipher-suites %q: want some of %s", name, strings.Join(suiteNames(), ", "))
		}
		ids = append(ids, id)
	}
	if oldest == tls.VersionTLS12 && !slices.Contains(ids, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) && !slices.Contains(ids, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) {
		return nil, errors.New("--tls-cipher-suites: HTTP/2 needs TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 among them")
	}
	return ids, nil
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

// selfSignedFor is the validity of a certificate created at start. A daemon must be
// restarted before it expires.
const selfSignedFor = 365 * 24 * time.Hour

// selfSigned returns a certificate for the host name, loopback and addresses.
func selfSigned(addresses ...netip.Addr) (*tls.Certificate, error) {
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
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, a.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
