package streams_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// network is where the servers of a test listen, by "host:port".
type network interface {
	listen(t *testing.T, address string) net.Listener
	dial(ctx context.Context, network, address string) (net.Conn, error)
}

// loopback is the real network: every address is mapped to a port of 127.0.0.1.
type loopback struct{ addresses sync.Map }

func (l *loopback) listen(t *testing.T, address string) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.addresses.Store(address, ln.Addr().String())
	return ln
}

func (l *loopback) dial(ctx context.Context, _, address string) (net.Conn, error) {
	real, ok := l.addresses.Load(address)
	if !ok {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", real.(string))
}

// memory uses pipes as connections: it works in a synctest bubble, which does not end before all
// goroutines have ended.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
}

type memoryListener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (m *memory) listen(_ *testing.T, address string) net.Listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners == nil {
		m.listeners = map[string]*memoryListener{}
	}
	l := &memoryListener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	m.listeners[address] = l
	return l
}

func (m *memory) dial(ctx context.Context, _, address string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: connection refused", address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.address) }

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

// authority signs the certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{pool: x509.NewCertPool()}
	der, key := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = cert, key
	a.pool.AddCert(cert)
	return a
}

func (a *authority) sign(t *testing.T, c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

func (a *authority) server(t *testing.T, names ...string) *tls.Config {
	der, key := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientCAs: a.pool, ClientAuth: tls.VerifyClientCertIfGiven}
}

func (a *authority) client(t *testing.T, name string, groups ...string) *tls.Certificate {
	der, key := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
