package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"podium/pkg/scheme"
)

// Config holds the addresses and the credentials of a client.
type Config struct {
	// Servers are base URLs (https://host:port). They are tried in order; the one
	// that answers is used until it fails.
	Servers []string
	// TLS holds the CA and the client certificate; nil trusts the system's CAs.
	TLS *tls.Config
	// Roots, if not nil, returns the CAs to trust instead of those in TLS. It is
	// called for each connection, so that the CA file may change.
	Roots func() *x509.CertPool
	// Proxy is the URL of the proxy of all connections; nil: that of the environment.
	Proxy *url.URL
	// Token returns the bearer token of each request; with nil or "" there is none.
	Token func() (string, error)
	// Rejected, if not nil, is called when the server answers 401. The request is
	// then retried once.
	Rejected func()
	// Transport replaces the network in simulations and tests; TLS is then ignored.
	Transport http.RoundTripper
	// Wrap, if not nil, returns a transport that sends each request over the given one,
	// which speaks to the network: it sees credentials.
	Wrap func(http.RoundTripper) http.RoundTripper
	// UserAgent names the program in the server's logs.
	UserAgent string
	// Header is added to every request; a request's own values take precedence. Used
	// for impersonation.
	Header http.Header
}

// Timeouts of a connection. An HTTP/2 connection that received nothing for pingAfter
// is pinged, and closed after pingTimeout: the client leaves a server whose machine
// has failed within ten seconds.
const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 10 * time.Second
	keepAlive        = 30 * time.Second
	pingAfter        = 5 * time.Second
	pingTimeout      = 5 * time.Second
)

// Client sends requests to the API. It is safe for concurrent use.
type Client struct {
	scheme  *scheme.Scheme
	cfg     Config
	servers atomic.Pointer[servers]

	network  network
	upgrades http.RoundTripper // HTTP/1.1 only
}

// New returns a client for cfg, or an error if cfg is invalid. It opens no connection.
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

// Scheme returns the set of kinds that the client encodes and decodes.
func (c *Client) Scheme() *scheme.Scheme { return c.scheme }

// over returns the transport with Config.Wrap around it.
func (c *Client) over(t http.RoundTripper) http.RoundTripper {
	if c.cfg.Wrap == nil {
		return t
	}
	return c.cfg.Wrap(t)
}

// CloseIdle closes the connections that no request uses.
func (c *Client) CloseIdle() { c.network.closeIdle() }

// Reconnect makes subsequent requests use new connections, which present the current
// certificate. Requests in flight finish on the old connections.
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
		Proxy:               proxyFunc(cfg),
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
		t.TLSClientConfig.RootCAs = cfg.Roots() // used for connections through a proxy
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

func proxyFunc(cfg Config) func(*http.Request) (*url.URL, error) {
	if cfg.Proxy == nil {
		return http.ProxyFromEnvironment
	}
	return http.ProxyURL(cfg.Proxy)
}

// handshake performs the TLS handshake with the CAs that cfg.Roots returns now.
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

// network holds the current connections. A server that answers 401 on a connection
// may have seen a certificate that has expired since. renew then switches to new
// connections, which present the current certificate; requests in flight finish on
// the old ones.
type network struct {
	fixed http.RoundTripper // if set, there are no connections to renew
	make  func() *http.Transport

	mu      sync.Mutex
	current *http.Transport
	renewed time.Time
}

// renewEvery is the minimum time between two renewals caused by 401 answers.
const renewEvery = 10 * time.Second

// transport returns the current connections. Its first call creates them.
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

// renew replaces the connections of failed. It reports whether the next request will
// use a new connection.
func (n *network) renew(failed http.RoundTripper) bool {
	if n.fixed != nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if http.RoundTripper(n.current) != failed {
		return true // another request has renewed it since
	}
	if time.Since(n.renewed) < renewEvery {
		return false
	}
	n.current.CloseIdleConnections()
	n.current, n.renewed = n.make(), time.Now()
	return true
}

// replace switches to new connections. Requests in flight finish on the old ones.
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
