package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/metricsserver/usage"
)

// Config configures a Client.
type Config struct {
	// Roots returns the CAs of kubelets' serving certificates; nil: the system's. It is
	// called for each connection.
	Roots func() *x509.CertPool
	// Credentials has the client certificate, and is not used for anything else; with nil
	// there is none.
	Credentials *tls.Config
	// Token returns the bearer token of each request; with nil or "" there is none.
	Token func() (string, error)

	AddressTypes []corev1.NodeAddressType // of nodes, in order of preference
	Port         int                      // of kubelets
	StatusPort   bool                     // use the port in the Node's status, if it has one
	Timeout      time.Duration            // of one request

	Dial func(ctx context.Context, network, address string) (net.Conn, error) // nil: by TCP
	Now  func() time.Time                                                     // nil: time.Now
}

// Client asks kubelets. It is safe for concurrent use.
type Client struct {
	cfg  Config
	http *http.Client
}

// maxBody is the maximum size of an answer in bytes. 250 pods with five containers and
// names of the maximum length need less than 3 MiB.
const maxBody = 4 << 20

const (
	idleTimeout = 2 * time.Minute // longer than the usual interval between requests
	maxHeader   = 64 << 10
)

// New returns a Client. It opens no connection.
func New(cfg Config) *Client {
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Client{cfg: cfg}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialTLSContext: c.dial, MaxIdleConnsPerHost: 1, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// addressKey is the context key of the address to dial: URLs have a node's name as their
// host, so that a connection is only used for the node that it was made for.
type addressKey struct{}

// dial connects to the kubelet of the node that named is NAME:PORT of. Its certificate
// must be valid for this name, so that no other node can answer in its place.
func (c *Client) dial(ctx context.Context, network, named string) (net.Conn, error) {
	node, _, err := net.SplitHostPort(named)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout) // net/http may go on dialing when the request has ended
	defer cancel()
	address, _ := ctx.Value(addressKey{}).(string)
	conn, err := c.cfg.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: node}
	if c.cfg.Roots != nil {
		cfg.RootCAs = c.cfg.Roots()
	}
	if own := c.cfg.Credentials; own != nil {
		cfg.Certificates, cfg.GetClientCertificate = own.Certificates, own.GetClientCertificate
	}
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// Sample asks the kubelet of a node. It blocks for at most the configured timeout.
func (c *Client) Sample(ctx context.Context, node *corev1.Node) (usage.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	req, err := c.request(ctx, node)
	if err != nil {
		return usage.Sample{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return usage.Sample{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return usage.Sample{}, fmt.Errorf("GET %s: %s", req.URL, resp.Status)
	}
	body := &bounded{from: resp.Body, left: maxBody}
	sample, err := Parse(body, c.cfg.Now())
	if body.err != nil {
		err = body.err // the parser may not have noticed that something is missing
	}
	if err == nil {
		// A server may end its answer as if it were whole when the client, whose time is
		// up, announces that it closes the connection.
		err = ctx.Err()
	}
	if err != nil {
		return usage.Sample{}, fmt.Errorf("GET %s: %w", req.URL, err)
	}
	return sample, nil
}

func (c *Client) request(ctx context.Context, node *corev1.Node) (*http.Request, error) {
	address, port, err := c.address(node)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, addressKey{}, net.JoinHostPort(address, port))
	u := &url.URL{Scheme: "https", Host: net.JoinHostPort(node.Name, port), Path: "/metrics/resource"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	if c.cfg.Token == nil {
		return req, nil
	}
	token, err := c.cfg.Token()
	if err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// address returns where a node's kubelet listens.
func (c *Client) address(node *corev1.Node) (address, port string, err error) {
	port = strconv.Itoa(c.cfg.Port)
	if has := node.Status.DaemonEndpoints.KubeletEndpoint.Port; c.cfg.StatusPort && has > 0 {
		port = strconv.Itoa(int(has))
	}
	for _, wanted := range c.cfg.AddressTypes {
		i := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == wanted })
		if i >= 0 {
			return node.Status.Addresses[i].Address, port, nil
		}
	}
	return "", "", fmt.Errorf("the node has no address of the types %v", c.cfg.AddressTypes)
}

var errTooLong = fmt.Errorf("the answer is longer than %d bytes", maxBody)

// bounded reads at most left bytes; more are an error. It keeps the error that ended
// the reading, except io.EOF.
type bounded struct {
	from io.Reader
	left int
	err  error
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= n; b.left < 0 {
		err = errTooLong
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}
