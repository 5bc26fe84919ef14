package cli

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podium/pkg/cli/rest"
	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// Factory is what every command gets: streams, and the way to the cluster,
// which is only gone when a command asks for it.
type Factory struct {
	IO
	conn connection

	// Connect makes the cluster; tests replace it.
	Connect func() (*rest.Cluster, error)

	once    sync.Once
	cluster *rest.Cluster
	err     error
}

// connection are the flags that say which server, as whom, and where in it.
type connection struct {
	kubeconfig, context, cluster, user string
	namespace                          string
	server, token                      string
	ca, cert, key, tlsServerName       string
	insecure                           bool
	as, asUID                          string
	asGroups                           []string
	timeout                            time.Duration
}

// manager is the name under which the CLI owns the fields it sets.
const manager = "podium"

func newFactory(streams IO) *Factory {
	f := &Factory{IO: streams}
	f.Connect = f.connect
	return f
}

func (f *Factory) flags(fs *pflag.FlagSet) {
	c := &f.conn
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&c.context, "context", "", "context of the kubeconfig to use")
	fs.StringVar(&c.cluster, "cluster", "", "cluster of the kubeconfig to use")
	fs.StringVar(&c.user, "user", "", "user of the kubeconfig to be")
	fs.StringVarP(&c.namespace, "namespace", "n", "", "namespace to work in (default: the context's)")
	fs.StringVarP(&c.server, "server", "s", "", "address of the API server")
	fs.StringVar(&c.token, "token", "", "bearer token to show the API server")
	fs.StringVar(&c.ca, "certificate-authority", "", "file with the CA of the API server")
	fs.StringVar(&c.cert, "client-certificate", "", "file with a client certificate")
	fs.StringVar(&c.key, "client-key", "", "file with the client certificate's key")
	fs.StringVar(&c.tlsServerName, "tls-server-name", "", "name to expect in the API server's certificate")
	fs.BoolVar(&c.insecure, "insecure-skip-tls-verify", false, "do not check the API server's certificate: anybody may be answering")
	fs.StringVar(&c.as, "as", "", "user to impersonate")
	fs.StringVar(&c.asUID, "as-uid", "", "UID to impersonate")
	fs.StringArrayVar(&c.asGroups, "as-group", nil, "group to impersonate; may be repeated")
	fs.DurationVar(&c.timeout, "request-timeout", 0, "how long one request may take; 0: as long as it takes")
}

// Cluster is the cluster, connected on the first call.
func (f *Factory) Cluster() (*rest.Cluster, error) {
	f.once.Do(func() { f.cluster, f.err = f.Connect() })
	return f.cluster, f.err
}

// Config is the kubeconfig with the flags applied.
func (f *Factory) Config() (*kubeconfig.Config, error) {
	var paths []string
	if f.conn.kubeconfig != "" {
		paths = []string{f.conn.kubeconfig}
	}
	return kubeconfig.Load(paths...)
}

// Namespace is where commands work, and whether somebody said so on the command line.
func (f *Factory) Namespace() (namespace string, explicit bool, err error) {
	if f.conn.namespace != "" {
		return f.conn.namespace, true, nil
	}
	cfg, err := f.Config()
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
	cc.UserAgent, cc.Header = "podium", f.impersonation()
	c, err := client.New(scheme.New(), cc)
	if err != nil {
		return nil, err
	}
	cluster := rest.New(c, func(text string) { fmt.Fprintln(f.Err, "Warning:", text) })
	cluster.Timeout = f.conn.timeout
	return cluster, nil
}

func (f *Factory) impersonation() http.Header {
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
	return h
}

// clientConfig joins the kubeconfig's context with the flags, which win.
func (f *Factory) clientConfig() (client.Config, error) {
	cfg, err := f.Config()
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
		cluster.Extensions = nil // other servers of a cluster that is not asked
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

var errNoServer = errors.New("no cluster is known: set KUBECONFIG or --kubeconfig to a cluster's file, or give --server (a new cluster: podium cluster create)")

// pick finds an entry of the kubeconfig by the name a flag gives, or else the context's.
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

// noArgs is cobra.NoArgs in the words of this command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q (see: %s --help)", args[0], cmd.CommandPath())
	}
	return nil
}

// openFile opens a file, or standard input for "-".
func (f *Factory) openFile(name string) ([]byte, error) {
	if name == "-" {
		return readAll(f.In)
	}
	return os.ReadFile(name)
}
