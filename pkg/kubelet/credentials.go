package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/backoff"
	"podium/pkg/client"
	"podium/pkg/client/csr"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/kubelet/certificate"
	"podium/pkg/scheme"
)

// credentials are the flags for the kubelet's certificates.
type credentials struct {
	kubeconfig, bootstrap, certDir string
	rotate, rotateServer           bool
}

func (c *credentials) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the kubelet; with --bootstrap-kubeconfig it is written if it does not exist")
	fs.StringVar(&c.bootstrap, "bootstrap-kubeconfig", "", "kubeconfig with a credential that may request this node's client certificate, used while there is no valid one")
	fs.StringVar(&c.certDir, "cert-dir", "/var/lib/kubelet/pki", "directory of the certificates that the kubelet requests")
	fs.BoolVar(&c.rotate, "rotate-certificates", false, "request a new client certificate before the present one expires")
	fs.BoolVar(&c.rotateServer, "rotate-server-certificates", false, "request the serving certificate from the API, and a new one before it expires; requests must be approved")
}

// identity is the kubelet's API client and the manager of its client certificate.
type identity struct {
	client *client.Client
	keep   *certificate.Manager // nil: the client certificate is not renewed
}

// identify returns the kubelet's identity. With neither --bootstrap-kubeconfig nor
// --rotate-certificates it uses the credential of --kubeconfig as it is. Otherwise,
// without a valid client certificate, it requests one with the bootstrap credential
// and blocks until the certificate is issued or ctx ends.
func (c *credentials) identify(ctx context.Context, node string, registry prometheus.Registerer, log *slog.Logger) (*identity, error) {
	if c.bootstrap == "" && !c.rotate {
		cfg, err := kubeconfig.ForDaemon(c.kubeconfig, userAgent)
		if err != nil {
			return nil, err
		}
		cl, err := client.New(scheme.New(), cfg)
		return &identity{client: cl}, err
	}
	own, initial, err := c.own()
	if err != nil {
		return nil, err
	}
	var boot *client.Client
	if c.bootstrap != "" {
		if boot, err = c.bootClient(&own); err != nil {
			return nil, err
		}
	}
	id := &identity{}
	ask := clientAsk(node, boot != nil && initial == nil)
	id.keep = certificate.New(certificate.Config{
		Store: c.store("kubelet-client"), Initial: initial, Ask: func() *csr.Ask { return ask }, Log: log, Registry: registry, Which: "client",
		Client: func() *client.Client {
			if boot != nil && !id.good(ask) {
				return boot
			}
			return id.client
		},
		Changed: func() { id.client.Reconnect() },
	})
	if id.client, err = c.apiClient(own, id.keep); err != nil {
		return nil, err
	}
	if !id.good(ask) {
		if boot == nil {
			return nil, fmt.Errorf("there is no valid client certificate of %s in %s or %s%s: give a credential that may request one with --bootstrap-kubeconfig; on a machine of podium join, join again by what `podium token create --print-join-command` prints on a control plane's machine",
				ask.Template.Subject.CommonName, c.kubeconfig, c.store("kubelet-client").Path(), ended(initial))
		}
		if err := c.bootstrapped(ctx, id.keep, log); err != nil {
			return nil, err
		}
	}
	return id, c.writeKubeconfig(own)
}

// ended returns a remark on when cert expired, for an error message; "" if cert
// is nil or has not expired.
func ended(cert *tls.Certificate) string {
	if cert == nil {
		return ""
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil || time.Now().Before(leaf.NotAfter) {
		return ""
	}
	return fmt.Sprintf(" (the one there has ended on %s)", leaf.NotAfter.UTC().Format(time.DateOnly))
}

const userAgent = "kubelet"

func (c *credentials) store(name string) certificate.Store {
	return certificate.Store{Dir: c.certDir, Name: name}
}

// good reports whether the present certificate is valid and fits ask.
func (id *identity) good(ask *csr.Ask) bool {
	cert := id.keep.Current()
	if cert == nil {
		return false
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	return err == nil && csr.Fits(leaf, &ask.Template)
}

// own reads --kubeconfig and returns its cluster and its client certificate.
// The cluster is nil if the file does not exist and can be bootstrapped; the
// certificate is nil if the file holds or names none.
func (c *credentials) own() (*kubeconfig.Cluster, *tls.Certificate, error) {
	file, err := kubeconfig.Load(c.kubeconfig)
	if errors.Is(err, fs.ErrNotExist) && c.bootstrap != "" {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	cluster, user, err := present(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.kubeconfig, err)
	}
	cert, err := certificateOf(user)
	if err != nil && c.bootstrap == "" {
		return nil, nil, fmt.Errorf("%s: %w", c.kubeconfig, err)
	}
	return cluster, cert, nil
}

// present returns the cluster and the user of a file's current context.
func present(file *kubeconfig.Config) (*kubeconfig.Cluster, *kubeconfig.User, error) {
	now := file.Context(file.CurrentContext)
	if now == nil {
		return nil, nil, errors.New("no current context")
	}
	cluster, user := file.Cluster(now.Cluster), file.User(now.User)
	if cluster == nil || user == nil {
		return nil, nil, fmt.Errorf("context %q names a cluster or a user that does not exist", file.CurrentContext)
	}
	return cluster, user, nil
}

// certificateOf returns a user's client certificate; nil if the user has another
// credential.
func certificateOf(u *kubeconfig.User) (*tls.Certificate, error) {
	cert, key := u.ClientCertificateData, u.ClientKeyData
	var err error
	if len(cert) == 0 && u.ClientCertificate != "" {
		if cert, err = os.ReadFile(u.ClientCertificate); err != nil {
			return nil, err
		}
	}
	if len(key) == 0 && u.ClientKey != "" {
		if key, err = os.ReadFile(u.ClientKey); err != nil {
			return nil, err
		}
	}
	if len(cert) == 0 {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &pair, err
}

// bootClient returns a client with the bootstrap credential; nil if the file
// does not exist and *own is set. If *own is nil, bootClient sets it to the
// cluster of the bootstrap file.
func (c *credentials) bootClient(own **kubeconfig.Cluster) (*client.Client, error) {
	file, err := kubeconfig.Load(c.bootstrap)
	if errors.Is(err, fs.ErrNotExist) && *own != nil {
		return nil, nil // administrators may remove the file after the bootstrap
	}
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	cfg, _, err := file.Client("")
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-kubeconfig %s: %w", c.bootstrap, err)
	}
	if *own == nil {
		if *own, _, err = present(file); err != nil {
			return nil, fmt.Errorf("--bootstrap-kubeconfig %s: %w", c.bootstrap, err)
		}
	}
	cfg.UserAgent = userAgent
	return client.New(scheme.New(), cfg)
}

var errNoCertificate = errors.New("the kubelet has no valid client certificate")

// apiClient returns a client that presents the manager's current certificate on
// each new connection.
func (c *credentials) apiClient(cluster *kubeconfig.Cluster, keep *certificate.Manager) (*client.Client, error) {
	cfg, _, err := kubeconfig.New("default", *cluster, kubeconfig.User{}).Client("")
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = userAgent
	cfg.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if cert := keep.Current(); cert != nil {
			return cert, nil
		}
		return nil, errNoCertificate
	}
	return client.New(scheme.New(), cfg)
}

// clientAsk returns the request for the node's client certificate. first selects
// the name prefix that upstream's kubelet uses while it bootstraps.
func clientAsk(node string, first bool) *csr.Ask {
	prefix := "csr-"
	if first {
		prefix = "node-csr-"
	}
	return &csr.Ask{
		Prefix: prefix, Signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages:   []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		Template: x509.CertificateRequest{Subject: nodeSubject(node)},
	}
}

func nodeSubject(node string) pkix.Name {
	return pkix.Name{CommonName: csr.NodePrefix + node, Organization: []string{csr.NodeGroup}}
}

// The delays between bootstrap attempts.
const (
	bootFirstRetry = time.Second
	bootLastRetry  = 30 * time.Second
)

// bootstrapped retries until the first certificate is issued or ctx ends. It
// gives up if the API rejects the credential, since a retry cannot help.
func (c *credentials) bootstrapped(ctx context.Context, keep *certificate.Manager, log *slog.Logger) error {
	log.Info("requesting the client certificate of this node", "credential", c.bootstrap, "signer", certificatesv1.KubeAPIServerClientKubeletSignerName)
	retry := backoff.Backoff{Initial: bootFirstRetry, Max: bootLastRetry}
	for {
		err := keep.Obtain(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsUnauthorized(err):
			return fmt.Errorf("the credential in --bootstrap-kubeconfig %s is not valid (a bootstrap token expires after a day by default): create a new one with `podium token create`, put it into that file and start the kubelet again: %w", c.bootstrap, err)
		case apierrors.IsForbidden(err):
			return fmt.Errorf("the credential in --bootstrap-kubeconfig %s may not request certificates: bind its user or group to ClusterRole system:node-bootstrapper, or use a token of `podium token create`: %w", c.bootstrap, err)
		}
		wait := retry.Next()
		log.Warn("request client certificate failed, retrying", "error", err, "retry", wait)
		if err := backoff.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// writeKubeconfig writes a kubeconfig that names the certificate's file unless
// --kubeconfig exists. The next start and administrators use it.
func (c *credentials) writeKubeconfig(cluster *kubeconfig.Cluster) error {
	if _, err := os.Stat(c.kubeconfig); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	path := c.store("kubelet-client").Path()
	return kubeconfig.New("default", *cluster, kubeconfig.User{ClientCertificate: path, ClientKey: path}).Write(c.kubeconfig, 0o600)
}

// serving manages the kubelet's serving certificate. Its names and addresses are
// those in the status of the Node object.
type serving struct {
	keep *certificate.Manager
	node atomic.Pointer[corev1.Node]
}

func (c *credentials) serving(id *identity, registry prometheus.Registerer, log *slog.Logger) *serving {
	s := &serving{}
	s.keep = certificate.New(certificate.Config{
		Store: c.store("kubelet-server"), Ask: func() *csr.Ask { return servingAsk(s.node.Load()) }, Log: log, Registry: registry, Which: "server",
		Client: func() *client.Client { return id.client },
	})
	return s
}

// observe stores the Node object as the API has it and has the certificate
// checked against it. It ignores nil.
func (s *serving) observe(n *corev1.Node) {
	if n != nil {
		s.node.Store(n)
		s.keep.Poke()
	}
}

var errNotServing = errors.New("no serving certificate available for the kubelet: its certificate signing request waits to be approved and signed")

func (s *serving) certificate() (*tls.Certificate, error) {
	if cert := s.keep.Current(); cert != nil {
		return cert, nil
	}
	return nil, errNotServing
}

// servingAsk returns the request for the node's serving certificate; nil until
// the Node has an IP address.
func servingAsk(n *corev1.Node) *csr.Ask {
	if n == nil {
		return nil
	}
	template := x509.CertificateRequest{Subject: nodeSubject(n.Name), DNSNames: []string{n.Name}}
	for _, a := range n.Status.Addresses {
		if ip := net.ParseIP(a.Address); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if a.Address != "" && !slices.Contains(template.DNSNames, a.Address) {
			template.DNSNames = append(template.DNSNames, a.Address)
		}
	}
	if len(template.IPAddresses) == 0 {
		return nil
	}
	return &csr.Ask{
		Prefix: "csr-", Signer: certificatesv1.KubeletServingSignerName,
		Usages:   []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		Template: template,
	}
}
