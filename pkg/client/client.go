package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"podium/pkg/scheme"
)

// Config says where the API is and who asks.
type Config struct {
	// Servers are base URLs (https://host:port). They are tried in order and
	// the one that answers is kept until it does not.
	Servers []string
	// TLS holds the CA and the client certificate; nil trusts the system's CAs.
	TLS *tls.Config
	// Roots, when set, are asked at each connection for the CAs to trust instead
	// of those in TLS: their file may change.
	Roots func() *x509.CertPool
	// Token gives the bearer token of each request; nil or an empty token: none.
	Token func() (string, error)
	// Rejected is told when the server did not know who asked; the request is
	// then sent once more. nil: nobody is told.
	Rejected func()
	// Transport replaces the network, for simulations and tests; TLS is then ignored.
	Transport http.RoundTripper
	// UserAgent names the program in the server's logs.
	UserAgent string
	// Header goes with every request that does not set the same itself:
	// impersonation, say.
	Header http.Header
}

// How long a peer may be silent. An HTTP/2 connection that showed nothing for
// pingAfter is asked for a sign of life, and given up after pingTimeout: a
// server whose machine is gone is left in ten seconds for another.
const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 10 * time.Second
	keepAlive        = 30 * time.Second
	pingAfter        = 5 * time.Second
	pingTimeout      = 5 * time.Second
)

// Client sends requests to the API.
type Client struct {
	scheme  *scheme.Scheme
	cfg     Config
	servers atomic.Pointer[servers]

	network  network
	upgrades http.RoundTripper // HTTP/1.1 only
}

// New checks the configuration; it opens no connection.
func New(s *scheme.Scheme, cfg Config) (*Client, error) {
	c := &Client{scheme: s, cfg: cfg}
	if err := c.SetServers(cfg.Servers); err != nil {
		return nil, err
	}
	if cfg.Transport != nil {
		c.network.fixed = cfg.Transport
		c.upgrades = cfg.Transport
		return c, nil
	}
	c.network.make = func() *http.Transport { return newTransport(cfg) }
	c.upgrades = newUpgradeTransport(cfg)
	return c, nil
}

// Scheme is the set of kinds the client knows.
func (c *Client) Scheme() *scheme.Scheme { return c.scheme }

// CloseIdle closes the connections that no request uses.
func (c *Client) CloseIdle() { c.network.closeIdle() }

// Reconnect has the next requests go over new connections, which show the
// present certificate. The old ones finish what they carry.
func (c *Client) Reconnect() { c.network.replace() }

func newTransport(cfg Config) *http.Transport {
	return transportOf(cfg, "h2", "http/1.1")
}

// newUpgradeTransport speaks HTTP/1.1 only: HTTP/2 has no Upgrade.
func newUpgradeTransport(cfg Config) *http.Transport {
	t := transportOf(cfg, "http/1.1")
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.DisableKeepAlives = true
	if t.TLSClientConfig != nil {
		t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return t
}

func transportOf(cfg Config, protocols ...string) *http.Transport {
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSClientConfig:     cloneTLS(cfg.TLS),
		TLSHandshakeTimeout: handshakeTimeout,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConnsPerHost: 25,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // inside a cluster, CPU is dearer than bytes
	}
	if cfg.Roots != nil {
		if t.TLSClientConfig == nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		t.TLSClientConfig.RootCAs = cfg.Roots() // by way of a proxy it is these that count
		t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return handshake(ctx, conn, cfg, address, protocols)
		}
	}
	return t
}

// handshake makes a connection secure, with the CAs of this moment.
func handshake(ctx context.Context, conn net.Conn, cfg Config, address string, protocols []string) (net.Conn, error) {
	present := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS != nil {
		present = cfg.TLS.Clone()
	}
	present.RootCAs, present.NextProtos = cfg.Roots(), protocols
	if present.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		present.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(conn, present)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

func cloneTLS(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil
	}
	return cfg.Clone()
}

// network holds the present connections. A server that says 401 on a
// connection may have seen a certificate that expired since: renew turns to
// new connections, which present the present certificate, and lets the old
// ones finish what they carry.
type network struct {
	fixed http.RoundTripper // when set, there is nothing to renew
	make  func() *http.Transport

	mu      sync.Mutex
	current *http.Transport
	renewed time.Time
}

// renewEvery bounds how often a server's 401s can cost us our connections.
const renewEvery = 10 * time.Second

func (n *network) transport() http.RoundTripper {
	if n.fixed != nil {
		return n.fixed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current == nil {
		n.current, n.renewed = n.make(), time.Now()
	}
	return n.current
}

// renew reports whether the next request will use a new connection.
func (n *network) renew(failed http.RoundTripper) bool {
	if n.fixed != nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if http.RoundTripper(n.current) != failed {
		return true // somebody else has renewed it since
	}
	if time.Since(n.renewed) < renewEvery {
		return false
	}
	n.current.CloseIdleConnections()
	n.current, n.renewed = n.make(), time.Now()
	return true
}

func (n *network) replace() {
	if n.fixed != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		n.current.CloseIdleConnections()
	}
	n.current, n.renewed = n.make(), time.Now()
}

func (n *network) closeIdle() {
	type idler interface{ CloseIdleConnections() }
	if i, ok := n.transport().(idler); ok {
		i.CloseIdleConnections()
	}
}
