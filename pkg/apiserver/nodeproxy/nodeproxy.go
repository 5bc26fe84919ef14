package nodeproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/wire"
	"podium/pkg/client/certfile"
	"podium/pkg/client/streams"
)

// Config configures how the proxy connects to nodes and pods.
type Config struct {
	// Certificate is the client certificate for kubelets; nil: none. Authority
	// holds the CAs of kubelets' serving certificates (nil, or a nil pool: the
	// system's). A kubelet's certificate must be valid for the address that is
	// dialed or for its node's name.
	Certificate func() *tls.Certificate
	Authority   func() *x509.CertPool

	// AddressTypes are the types of node addresses to use, in order of
	// preference; nil: InternalIP, ExternalIP, Hostname, InternalDNS,
	// ExternalDNS.
	AddressTypes []corev1.NodeAddressType

	// Dial opens connections; nil: TCP, with Timeout, to allowed addresses
	// only.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Timeout time.Duration // 0: 10 s

	// Own are the addresses of this server. Unless Anywhere is set, the proxy
	// refuses to connect to them and to loopback and link-local addresses,
	// whatever the status of nodes and pods.
	Own      []netip.AddrPort
	Anywhere bool

	Log *slog.Logger // nil: discarded
}

// Proxy serves the streaming and proxy subresources. It is safe for concurrent
// use.
type Proxy struct {
	Config
	kubelets *http.Transport // TLS with the client certificate
	pods     *http.Transport // to pods and Services, without credentials
}

const (
	kubeletPort    = 10250
	defaultTimeout = 10 * time.Second
	idleTimeout    = 90 * time.Second
)

// New returns a proxy. It keeps idle connections until Close.
func New(cfg Config) *Proxy {
	if cfg.Authority == nil {
		cfg.Authority = func() *x509.CertPool { return nil }
	}
	if cfg.AddressTypes == nil {
		cfg.AddressTypes = []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Dial == nil {
		cfg.Dial = cfg.dialer().DialContext
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{Config: cfg}
	p.kubelets = &http.Transport{DialTLSContext: p.dialKubelet, IdleConnTimeout: idleTimeout, DisableCompression: true}
	p.pods = &http.Transport{
		DialContext:         cfg.Dial,
		IdleConnTimeout:     idleTimeout,
		TLSHandshakeTimeout: cfg.Timeout,
		DisableCompression:  true,
		// Not verified, as upstream: clients name a pod or a Service and the
		// proxy dials an IP address, for which a pod's certificate is not
		// valid, by a CA that the cluster does not know. The API decides which
		// address the proxy dials: the pod's IP, allowed below. kubelets are
		// verified (dialKubelet); pods get no credentials of the server.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	return p
}

// dialer connects to allowed addresses only. It checks when it dials, since a
// host name may resolve to any address.
func (c *Config) dialer() *net.Dialer {
	return &net.Dialer{Timeout: c.Timeout, KeepAlive: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if !c.allowed(to.Addr(), strconv.Itoa(int(to.Port()))) {
			return errNotAllowed
		}
		return nil
	}}
}

// errNotAllowed has upstream's text.
var errNotAllowed = errors.New("address not allowed")

// FromFiles is New with certificates from files, which are read again when they
// change. An empty file name means none.
func FromFiles(cfg Config, authority, certificate, key string) (*Proxy, error) {
	if authority != "" {
		pool, err := certfile.NewPool(authority)
		if err != nil {
			return nil, err
		}
		cfg.Authority = pool.Get
	}
	if certificate != "" {
		pair, err := certfile.NewPair(certificate, key)
		if err != nil {
			return nil, err
		}
		cfg.Certificate = pair.Get
	}
	return New(cfg), nil
}

// Close closes idle connections. Connections in use stay.
func (p *Proxy) Close() {
	p.kubelets.CloseIdleConnections()
	p.pods.CloseIdleConnections()
}

// Streams returns the handlers, by the subresource that they serve.
func (p *Proxy) Streams() registry.Streams {
	return registry.Streams{
		PodLog:         connect(p.podLog),
		PodExec:        connect(p.podExec),
		PodAttach:      connect(p.podAttach),
		PodPortForward: connect(p.podPortForward),
		PodProxy:       connect(p.podProxy),
		ServiceProxy:   connect(p.serviceProxy),
		NodeProxy:      connect(p.nodeProxy),
	}
}

// request is one request for a subresource.
type request struct {
	registry.Backend
	namespace, name, path string
	w                     http.ResponseWriter
	r                     *http.Request
}

// connect adapts a handler that returns errors: an error is answered with a
// Status.
func connect(f func(*request) error) registry.Connect {
	return func(b registry.Backend, namespace, name, path string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := f(&request{b, namespace, name, path, w, r}); err != nil {
				wire.WriteError(w, r, err)
			}
		})
	}
}

// get returns an object of the core group, or an API error.
func get[T any](req *request, resource, namespace, name string) (T, error) {
	var zero T
	obj, err := req.Get(req.r.Context(), corev1.SchemeGroupVersion.WithResource(resource), namespace, name)
	if err != nil {
		return zero, err
	}
	t, ok := obj.(T)
	if !ok {
		return zero, fmt.Errorf("%s %s/%s is a %T", resource, namespace, name, obj)
	}
	return t, nil
}

// kubelet is the address of a node's kubelet.
type kubelet struct {
	node string
	host string
	port string
}

// kubelet returns the kubelet of a node, at its first address of the preferred
// types. It returns a BadRequest error if that address is not allowed.
func (p *Proxy) kubelet(req *request, nodeName string) (*kubelet, error) {
	node, err := get[*corev1.Node](req, "nodes", "", nodeName)
	if err != nil {
		return nil, err
	}
	k := &kubelet{node: nodeName, port: strconv.Itoa(kubeletPort)}
	if port := node.Status.DaemonEndpoints.KubeletEndpoint.Port; port > 0 {
		k.port = strconv.Itoa(int(port))
	}
	for _, want := range p.AddressTypes {
		for _, a := range node.Status.Addresses {
			if a.Type == want && a.Address != "" {
				k.host = a.Address
				if addr, err := netip.ParseAddr(k.host); err == nil && !p.allowed(addr, k.port) {
					return nil, apierrors.NewBadRequest(errNotAllowed.Error())
				}
				return k, nil
			}
		}
	}
	return nil, unreachable(fmt.Errorf("no preferred addresses found; known addresses: %v", node.Status.Addresses))
}

// unreachable returns a 500 error with exactly the text of err.
func unreachable(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}

func (k *kubelet) url(query url.Values, path ...string) *url.URL {
	u := &url.URL{Scheme: "https", Host: net.JoinHostPort(k.host, k.port), RawQuery: query.Encode()}
	return u.JoinPath(path...)
}

// target returns a stream target for a URL of the kubelet.
func (p *Proxy) target(k *kubelet, u *url.URL) streams.Target {
	return streams.Target{URL: u, Transport: kubeletTransport{p.kubelets, k.node}}
}

// kubeletTransport passes the node's name to dialKubelet and keeps the
// connections of nodes apart: a connection that was verified for one node must
// not serve another that claims the same address.
type kubeletTransport struct {
	*http.Transport
	node string
}

// kubeletAt is the kubelet to dial.
type kubeletAt struct{ node, address string }

type kubeletKey struct{}

// RoundTrip implements http.RoundTripper. It replaces the host of the URL,
// which is the key of the connection pool, by node and address.
func (t kubeletTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	at := kubeletAt{t.node, r.URL.Host}
	out := r.WithContext(context.WithValue(r.Context(), kubeletKey{}, at))
	if out.Host == "" {
		out.Host = at.address
	}
	u := *r.URL
	u.Host = at.node + "@" + at.address // the key of the connection pool; dialKubelet uses kubeletAt
	out.URL = &u
	return t.Transport.RoundTrip(out)
}

// dialKubelet connects to the kubelet in ctx and verifies its certificate.
func (p *Proxy) dialKubelet(ctx context.Context, network, _ string) (net.Conn, error) {
	at, ok := ctx.Value(kubeletKey{}).(kubeletAt)
	if !ok {
		return nil, errors.New("dial kubelet: the request names no node")
	}
	host, _, err := net.SplitHostPort(at.address)
	if err != nil {
		return nil, err
	}
	conn, err := p.Dial(ctx, network, at.address)
	if err != nil {
		return nil, err
	}
	names := []string{host, at.node}
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // verify does, with two names
		VerifyConnection:   func(cs tls.ConnectionState) error { return verify(cs, p.Authority(), names) },
	}
	if p.Certificate != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.Certificate(), nil }
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// verify returns nil if a root signed the server's certificate and it is valid
// for one of names. nil roots are the system's.
func verify(cs tls.ConnectionState, roots *x509.CertPool, names []string) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the kubelet has no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	leaf := cs.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return err
	}
	var err error
	for _, name := range names {
		if err = leaf.VerifyHostname(name); err == nil {
			return nil
		}
	}
	return err
}
