package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/rest"
	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// Factory gives every command its streams and the connection to the cluster,
// which is made on first use.
type Factory struct {
	IO
	conn     connection
	profiler profiler

	// Connect connects to the cluster; tests replace it.
	Connect func() (*rest.Cluster, error)
	inPod   func() (*kubeconfig.Config, error) // see access

	warnings atomic.Int32 // that the server has sent

	once    sync.Once
	cluster *rest.Cluster
	err     error
}

// connection are the flags that select the server, the user and the namespace.
type connection struct {
	kubeconfig, context, cluster, user string
	namespace                          string
	server, token                      string
	ca, cert, key, tlsServerName       string
	insecure                           bool
	as, asUID                          string
	asGroups, asExtra                  []string
	proxy                              string
	timeout                            time.Duration
	strict                             bool // --warnings-as-errors
	verbosity                          int  // -v
}

// manager is the field manager of the CLI.
const manager = "podium"

func newFactory(streams IO) *Factory {
	f := &Factory{IO: streams, inPod: kubeconfig.InCluster}
	f.Connect = f.connect
	return f
}

func (f *Factory) flags(fs *pflag.FlagSet) {
	c := &f.conn
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else ~/.kube/config)")
	fs.String("kuberc", "", "file with default values of flags, and aliases (default: $KUBERC, else ~/.kube/kuberc; KUBERC=off: none)")
	fs.StringVar(&c.context, "context", "", "context of the kubeconfig to use")
	fs.StringVar(&c.cluster, "cluster", "", "cluster of the kubeconfig to use")
	fs.StringVar(&c.user, "user", "", "user of the kubeconfig to use")
	fs.StringVarP(&c.namespace, "namespace", "n", "", "namespace scope of this request (default: that of the context)")
	fs.StringVarP(&c.server, "server", "s", "", "address and port of the API server")
	fs.StringVar(&c.token, "token", "", "bearer token for authentication to the API server")
	fs.StringVar(&c.ca, "certificate-authority", "", "file with the certificate of the API server's CA")
	fs.StringVar(&c.cert, "client-certificate", "", "file with the client certificate for TLS")
	fs.StringVar(&c.key, "client-key", "", "file with the client key for TLS")
	fs.StringVar(&c.tlsServerName, "tls-server-name", "", "server name for certificate validation (default: the host name of the server)")
	fs.BoolVar(&c.insecure, "insecure-skip-tls-verify", false, "do not verify the API server's certificate: this makes connections insecure")
	fs.StringVar(&c.as, "as", "", "username to impersonate for the operation")
	fs.StringVar(&c.asUID, "as-uid", "", "UID to impersonate for the operation")
	fs.StringArrayVar(&c.asGroups, "as-group", nil, "group to impersonate for the operation; may be repeated")
	fs.StringArrayVar(&c.asExtra, "as-user-extra", nil, "user extra to impersonate for the operation, as KEY=VALUE; may be repeated, also to specify multiple values for the same key")
	fs.StringVar(&c.proxy, "proxy-url", "", "proxy URL to use for requests to the API server: http, https or socks5")
	fs.BoolVar(&c.strict, "warnings-as-errors", false, "treat warnings received from the server as errors and exit with a non-zero exit code")
	f.profiler.flags(fs)
	fs.IntVarP(&c.verbosity, "v", "v", 0, "number for the log level verbosity: 6 logs the requests to the server, 7 their headers, too, and 8 those of the responses")
	fs.DurationVar(&c.timeout, "request-timeout", 0, "length of time to wait before giving up on a single server request; 0: no limit")
}

// Cluster returns the cluster. It connects on the first call, and returns the
// same result afterwards.
func (f *Factory) Cluster() (*rest.Cluster, error) {
	f.once.Do(func() { f.cluster, f.err = f.Connect() })
	return f.cluster, f.err
}

// Config returns the merged kubeconfig: --kubeconfig, or the default files.
func (f *Factory) Config() (*kubeconfig.Config, error) {
	var paths []string
	if f.conn.kubeconfig != "" {
		paths = []string{f.conn.kubeconfig}
	}
	return kubeconfig.Load(paths...)
}

// access returns the kubeconfig with which the command connects: that of Config or, if
// neither it nor a flag says where the cluster is, that of the pod that podium runs in.
func (f *Factory) access() (*kubeconfig.Config, error) {
	cfg, err := f.Config()
	if err != nil || f.conn.server != "" || f.conn.cluster != "" || f.contextName(cfg) != "" {
		return cfg, err
	}
	pod, err := f.inPod()
	if errors.Is(err, kubeconfig.ErrNotInCluster) || errors.Is(err, fs.ErrNotExist) { // a pod without a token
		return cfg, nil
	}
	return pod, err
}

// Namespace returns the namespace of the command; explicit is true if
// --namespace was set.
func (f *Factory) Namespace() (namespace string, explicit bool, err error) {
	if f.conn.namespace != "" {
		return f.conn.namespace, true, nil
	}
	cfg, err := f.access()
	if err != nil {
		return "", false, err
	}
	if ctx := cfg.Context(f.contextName(cfg)); ctx != nil && ctx.Namespace != "" {
		return ctx.Namespace, false, nil
	}
	return "default", false, nil
}

func (f *Factory) contextName(cfg *kubeconfig.Config) string {
	if f.conn.context != "" {
		return f.conn.context
	}
	return cfg.CurrentContext
}

func (f *Factory) connect() (*rest.Cluster, error) {
	cc, err := f.clientConfig()
	if err != nil {
		return nil, err
	}
	cc.UserAgent = "podium"
	if cc.Header, err = f.impersonation(); err != nil {
		return nil, err
	}
	if level := f.conn.verbosity; level >= logRequests {
		cc.Wrap = func(t http.RoundTripper) http.RoundTripper { return requestLog{t, f.Err, level} }
	}
	c, err := client.New(scheme.New(), cc)
	if err != nil {
		return nil, err
	}
	cluster := rest.New(c, func(text string) {
		f.warnings.Add(1)
		fmt.Fprintln(f.Err, "Warning:", text)
	})
	cluster.Timeout = f.conn.timeout
	return cluster, nil
}

func (f *Factory) impersonation() (http.Header, error) {
	h := http.Header{}
	if f.conn.as != "" {
		h.Set("Impersonate-User", f.conn.as)
	}
	if f.conn.asUID != "" {
		h.Set("Impersonate-Uid", f.conn.asUID)
	}
	for _, g := range f.conn.asGroups {
		h.Add("Impersonate-Group", g)
	}
	for _, extra := range f.conn.asExtra {
		key, value, ok := strings.Cut(extra, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--as-user-extra=%s: want KEY=VALUE", extra)
		}
		h.Add("Impersonate-Extra-"+strings.ReplaceAll(url.QueryEscape(key), "+", "%20"), value)
	}
	return h, nil
}

// clientConfig merges the kubeconfig's context with the flags, which take
// precedence.
func (f *Factory) clientConfig() (client.Config, error) {
	cfg, err := f.access()
	if err != nil {
		return client.Config{}, err
	}
	c := f.conn
	name := f.contextName(cfg)
	var ctx kubeconfig.Context
	if found := cfg.Context(name); found != nil {
		ctx = *found
	} else if name != "" {
		return client.Config{}, fmt.Errorf("context %q does not exist (see: podium config get-contexts)", name)
	}
	cluster, err := pick(cfg.Cluster, "cluster", c.cluster, ctx.Cluster)
	if err != nil {
		return client.Config{}, err
	}
	user, err := pick(cfg.User, "user", c.user, ctx.User)
	if err != nil {
		return client.Config{}, err
	}
	if c.server != "" {
		cluster.Server = c.server
		cluster.Extensions = nil // these list other servers of the cluster that --server overrides
	}
	if cluster.Server == "" {
		return client.Config{}, errNoServer
	}
	if c.ca != "" {
		cluster.CertificateAuthority, cluster.CertificateAuthorityData = c.ca, nil
	}
	if c.insecure {
		cluster.InsecureSkipTLSVerify, cluster.CertificateAuthority, cluster.CertificateAuthorityData = true, "", nil
	}
	if c.proxy != "" {
		cluster.ProxyURL = c.proxy
	}
	if c.tlsServerName != "" {
		cluster.TLSServerName = c.tlsServerName
	}
	if c.token != "" {
		user.Token, user.TokenFile = c.token, ""
	}
	if c.cert != "" {
		user.ClientCertificate, user.ClientCertificateData = c.cert, nil
	}
	if c.key != "" {
		user.ClientKey, user.ClientKeyData = c.key, nil
	}
	out, _, err := kubeconfig.New("flags", cluster, user).Client("")
	return out, err
}

var errNoServer = errors.New("no cluster configured: set KUBECONFIG or --kubeconfig, or give --server (to create a cluster: podium cluster create)")

// pick returns an entry of the kubeconfig by the name in a flag, or else by
// that in the context. It returns the zero value if both are empty.
func pick[T any](find func(string) *T, what, flag, fromContext string) (T, error) {
	var none T
	name := flag
	if name == "" {
		name = fromContext
	}
	if name == "" {
		return none, nil
	}
	found := find(name)
	if found == nil {
		return none, fmt.Errorf("the kubeconfig has no %s %q", what, name)
	}
	return *found, nil
}

// noArgs is cobra.NoArgs with an error that refers to the help.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q (see: %s --help)", args[0], cmd.CommandPath())
	}
	return nil
}

// sendRaw sends a request to a path and query, and prints the answer.
func (f *Factory) sendRaw(ctx context.Context, method, uri string, body []byte) error {
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return fmt.Errorf("--raw: %w", err)
	}
	c, err := f.Cluster()
	if err != nil {
		return err
	}
	r := client.Request{Method: method, Path: u.EscapedPath(), Query: u.Query(), Body: body}
	if body != nil {
		r.Header = http.Header{"Content-Type": {"application/json"}}
		if data, err := yaml.YAMLToJSON(body); err == nil {
			r.Body = data
		}
	}
	answer, _, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	_, err = f.Out.Write(answer)
	return err
}

// openFile reads a file, or standard input for "-".
func (f *Factory) openFile(name string) ([]byte, error) {
	if name == "-" {
		return readAll(f.In)
	}
	return os.ReadFile(name)
}
