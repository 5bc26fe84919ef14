package certrotation_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/nodeproxy"
	"podium/pkg/apiserver/registry"
	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/certfile"
	"podium/pkg/client/csr"
	"podium/pkg/cluster/pki"
	"podium/pkg/controllers"
	"podium/pkg/controllers/csrsigning"
	"podium/pkg/daemon"
	"podium/pkg/kubelet/certificate"
	"podium/pkg/kubelet/server"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
)

const (
	nodeName = "a"
	nodeIP   = "192.0.2.10"
	life     = time.Hour // of signed certificates
)

// cluster is a control plane and a node with real certificates; everything else is simulated.
type cluster struct {
	t      *testing.T
	dir    string
	scheme *scheme.Scheme
	roots  *certfile.Pool // the CAs that all trust: a file

	mu      sync.Mutex
	servers map[string]chan net.Conn // by host

	// The certificates of the administrator and of daemons, which no controller renews.
	own map[string]*atomic.Pointer[tls.Certificate]

	client, serving *certificate.Manager
	node            atomic.Pointer[corev1.Node]
}

func identities() map[string]pki.Identity {
	return map[string]pki.Identity{
		"api":         {Name: "kube-apiserver", Hosts: []string{"api"}},
		"admin":       {Name: "admin", Groups: []string{"system:masters"}},
		"controllers": {Name: "system:kube-controller-manager", Groups: []string{"system:masters"}},
		"to-kubelets": {Name: "kube-apiserver-kubelet-client"},
		"bootstrap":   {Name: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers:kubeadm:default-node-token"}},
	}
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, dir: t.TempDir(), scheme: scheme.New(), servers: map[string]chan net.Conn{}, own: map[string]*atomic.Pointer[tls.Certificate]{}}
	for name := range identities() {
		c.own[name] = &atomic.Pointer[tls.Certificate]{}
	}
	c.authority("old")
	c.trust("old")
	c.signBy("old")
	var err error
	if c.roots, err = certfile.NewPool(c.file("roots.crt")); err != nil {
		t.Fatal(err)
	}
	c.serveAPI()
	c.until("the API is up", func() error {
		_, _, err := c.as("admin").Do(t.Context(), client.Request{Path: "/readyz"})
		return err
	})
	return c
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) authority(name string) *pki.Authority {
	c.t.Helper()
	ca, err := pki.OpenAuthority(c.dir, name, time.Now)
	c.must(err)
	return ca
}

// trust sets the trusted CAs.
func (c *cluster) trust(names ...string) {
	c.t.Helper()
	var bundle []byte
	for _, name := range names {
		text, err := os.ReadFile(c.file(name + ".crt"))
		c.must(err)
		bundle = append(bundle, text...)
	}
	c.must(os.WriteFile(c.file("next"), bundle, 0o600))
	c.must(os.Rename(c.file("next"), c.file("roots.crt")))
}

// signBy makes this CA sign from now on, and replaces the daemons' own certificates.
func (c *cluster) signBy(name string) {
	c.t.Helper()
	for _, end := range []string{".crt", ".key"} {
		text, err := os.ReadFile(c.file(name + end))
		c.must(err)
		c.must(os.WriteFile(c.file("next"), text, 0o600))
		c.must(os.Rename(c.file("next"), c.file("signer"+end)))
	}
	ca := c.authority(name)
	for who, id := range identities() {
		c.own[who].Store(c.issue(ca, name+"-"+who, id))
	}
}

func (c *cluster) issue(ca *pki.Authority, file string, id pki.Identity) *tls.Certificate {
	c.t.Helper()
	c.must(ca.Issue(c.dir, file, id))
	certFile, keyFile := pki.Files(c.dir, file)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	c.must(err)
	return &pair
}

// background runs f until the test ends, or until stop is called.
func (c *cluster) background(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("in the background: %v", err)
		}
	})
	c.t.Cleanup(stop)
	return stop
}

// until waits until so returns nil.
func (c *cluster) until(what string, so func() error) {
	c.t.Helper()
	var err error
	for range 600 {
		if err = so(); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	c.t.Fatalf("it does not come to it that %s: %v", what, err)
}

// serveAPI runs the API server, which connects to the node through its node proxy.
func (c *cluster) serveAPI() {
	nodes := nodeproxy.New(nodeproxy.Config{Dial: c.dial, Certificate: c.own["to-kubelets"].Load, Authority: c.roots.Get})
	store := memory.New()
	access, err := apiserver.NewAccess(apiserver.AccessConfig{})
	c.must(err)
	cidr := netip.MustParsePrefix("10.96.0.0/16")
	cfg := apiserver.Config{
		Scheme: c.scheme, Store: store, Log: slog.New(slog.DiscardHandler), Listener: c.listen("api"), ServiceCIDR: cidr, Access: access, CompactEvery: -1,
		Kinds: registry.Kinds(c.scheme, registry.Config{
			Access: access, Store: store, ServiceCIDR: cidr, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now, Streams: nodes.Streams(),
		}),
		Authn: apiserver.Authentication{Requests: []authn.Authenticator{authn.Certificates(authn.CertificateConfig{Roots: c.roots.Get})}},
	}
	serving := daemon.Serving{Certificate: func() (*tls.Certificate, error) { return c.own["api"].Load(), nil }}
	cfg.TLS, err = serving.TLS()
	c.must(err)
	cfg.TLS.ClientAuth = tls.RequestClientCert
	s, err := apiserver.New(cfg)
	c.must(err)
	c.background(s.Run)
}

// control runs the controllers that approve and sign.
func (c *cluster) control() (stop func()) {
	signer, err := certfile.NewPair(c.file("signer.crt"), c.file("signer.key"))
	c.must(err)
	cfg := controllers.Default()
	cfg.LeaderElect = false
	cfg.Client = c.as("controllers")
	cfg.Controllers = []string{"certificatesigningrequest-approving-controller", "certificatesigningrequest-signing-controller", "certificatesigningrequest-cleaner-controller"}
	cfg.Signing = csrsigning.Options{MaxDuration: life, Authorities: map[string]func() *tls.Certificate{
		certificatesv1.KubeAPIServerClientKubeletSignerName: signer.Get, certificatesv1.KubeletServingSignerName: signer.Get,
	}}
	return c.background(func(ctx context.Context) error { return controllers.Run(ctx, cfg) })
}

// as returns an API client with one of the certificates in own.
func (c *cluster) as(who string) *client.Client { return c.with(c.own[who].Load) }

// with returns an API client that uses a new connection for each request, with the certificate that
// cert returns then.
func (c *cluster) with(cert func() *tls.Certificate) *client.Client {
	c.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		cfg := &tls.Config{RootCAs: c.roots.Get(), ServerName: "api"}
		if present := cert(); present != nil {
			cfg.Certificates = []tls.Certificate{*present}
		}
		return tls.Client(conn, cfg), nil
	}}
	cl, err := client.New(c.scheme, client.Config{Servers: []string{"https://api:6443"}, Transport: tr})
	c.must(err)
	return cl
}

// join creates the node and manages its certificates as a kubelet does.
func (c *cluster) join() {
	boot := c.as("bootstrap")
	ours := c.with(func() *tls.Certificate { return c.client.Current() })
	subject := pkix.Name{CommonName: csr.NodePrefix + nodeName, Organization: []string{csr.NodeGroup}}
	manager := func(name string, who func() *client.Client, ask func() *csr.Ask) *certificate.Manager {
		return certificate.New(certificate.Config{Store: certificate.Store{Dir: c.file("node"), Name: name}, Ask: ask, Client: who, Which: name, Log: slog.New(slog.DiscardHandler)})
	}
	c.client = manager("kubelet-client", func() *client.Client {
		if c.client.Current() == nil {
			return boot
		}
		return ours
	}, func() *csr.Ask {
		return &csr.Ask{Prefix: "csr-", Signer: certificatesv1.KubeAPIServerClientKubeletSignerName, Template: x509.CertificateRequest{Subject: subject},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}
	})
	c.serving = manager("kubelet-server", func() *client.Client { return ours }, func() *csr.Ask {
		if c.node.Load() == nil {
			return nil
		}
		return &csr.Ask{Prefix: "csr-", Signer: certificatesv1.KubeletServingSignerName,
			Usages:   []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
			Template: x509.CertificateRequest{Subject: subject, DNSNames: []string{nodeName}, IPAddresses: []net.IP{net.ParseIP(nodeIP)}}}
	})
	c.background(c.client.Run)
	c.background(c.serving.Run)
	c.until("the node has a client certificate and registers itself", func() error {
		n, err := client.For[*corev1.Node](ours).Create(c.t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: nodeName}, {Type: corev1.NodeInternalIP, Address: nodeIP}}},
		})
		if err == nil {
			c.node.Store(n)
			c.serving.Poke()
		}
		return err
	})
	c.serveNode(ours)
}

// serveNode is the kubelet's server, which authenticates and authorizes through the API.
func (c *cluster) serveNode(ours *client.Client) {
	serving := daemon.Serving{ClientCA: c.file("roots.crt"), Certificate: func() (*tls.Certificate, error) {
		if cert := c.serving.Current(); cert != nil {
			return cert, nil
		}
		return nil, errors.New("no serving certificate")
	}}
	cfg, err := serving.TLS()
	c.must(err)
	web := &http.Server{TLSConfig: cfg, ErrorLog: log.New(io.Discard, "", 0), Handler: server.New(server.Config{
		NodeName: nodeName, Access: access.New(access.Config{Reviews: access.Reviews{Client: ours}}),
	})}
	l := c.listen(nodeIP)
	go web.ServeTLS(l, "", "")
	c.t.Cleanup(func() { web.Close() })
}

// works returns an error if the node cannot reach the API, or an administrator cannot reach
// the node through the API.
func (c *cluster) works() error {
	ours := c.with(func() *tls.Certificate { return c.client.Current() })
	_, err := client.For[*corev1.Node](ours).Get(c.t.Context(), nodeName)
	_, _, proxyErr := c.as("admin").Do(c.t.Context(), client.Request{Path: "/api/v1/nodes/" + nodeName + "/proxy/healthz"})
	return errors.Join(err, proxyErr)
}

// keepsWorking checks works several times in the life of a certificate.
func (c *cluster) keepsWorking(d time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(life / 8) {
		c.must(c.works())
	}
}

// listen replaces the server of a host.
func (c *cluster) listen(host string) net.Listener {
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[host] = l.conns
	return l
}

func (c *cluster) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	server := c.servers[host]
	c.mu.Unlock()
	ours, theirs := net.Pipe()
	select {
	case server <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Second):
		return nil, errors.New("connection refused")
	}
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }
