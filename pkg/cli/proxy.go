package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"podium/pkg/cli/proxy"
)

// proxyOptions are the flags of proxy.
type proxyOptions struct {
	*Factory
	Address                                              string
	Port                                                 int
	UnixSocket                                           string
	APIPrefix                                            string
	Files, FilesPrefix                                   string
	AcceptHosts, AcceptPaths, RejectPaths, RejectMethods string
	DisableFilter                                        bool
	KeepAlive                                            time.Duration
}

func newProxy(f *Factory, run func(context.Context, *proxyOptions) error) *cobra.Command {
	o := &proxyOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "proxy", Short: "Run a proxy to the Kubernetes API server", Args: noArgs,
		Long: "Serve the API on this machine, with the credentials of the kubeconfig: every client that can connect has its rights. By default the proxy listens on the loopback interface only.",
		Example: `  podium proxy --port=8001 &
  curl localhost:8001/api/v1/namespaces`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.UnixSocket != "" && cmd.Flags().Changed("port") {
				return errors.New("cannot set --unix-socket and --port at the same time")
			}
			return run(cmd.Context(), o)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&o.Files, "www", "w", "", "also serve static files from the given directory under the specified prefix")
	fl.StringVarP(&o.FilesPrefix, "www-prefix", "P", "/static/", "prefix to serve static files under, if static file directory is specified")
	fl.StringVar(&o.APIPrefix, "api-prefix", "/", "prefix to serve the proxied API under")
	fl.StringVar(&o.AcceptPaths, "accept-paths", proxy.DefaultAcceptPaths, "regular expressions for paths that the proxy should accept, separated by commas")
	fl.StringVar(&o.RejectPaths, "reject-paths", proxy.DefaultRejectPaths, "regular expressions for paths that the proxy should reject, even if --accept-paths accepts them")
	fl.StringVar(&o.AcceptHosts, "accept-hosts", proxy.DefaultAcceptHosts, "regular expressions for hosts that the proxy should accept")
	fl.StringVar(&o.RejectMethods, "reject-methods", proxy.DefaultRejectMethods, "regular expressions for HTTP methods that the proxy should reject (example: POST,PUT,PATCH)")
	fl.IntVarP(&o.Port, "port", "p", 8001, "port on which to run the proxy; 0: a random port")
	fl.StringVar(&o.Address, "address", "127.0.0.1", "IP address on which to serve")
	fl.BoolVar(&o.DisableFilter, "disable-filter", false, "disable request filtering: any web site that the user visits can then use the API through the proxy's port")
	fl.StringVarP(&o.UnixSocket, "unix-socket", "u", "", "Unix socket on which to run the proxy")
	fl.Var(always{"the path of the server's URL is part of each request"}, "append-server-path", "append the path of the kubeconfig's server to each request: this is always so")
	fl.Lookup("append-server-path").NoOptDefVal = "true"
	fl.DurationVar(&o.KeepAlive, "keepalive", 0, "keep-alive period for an active network connection; 0: the system's default")
	return cmd
}

func (o *proxyOptions) filter() (*proxy.Filter, error) {
	if o.DisableFilter {
		if o.UnixSocket == "" {
			fmt.Fprintln(o.Err, "Warning: request filter disabled: any web site that the user visits can use the API through this proxy")
		}
		return nil, nil
	}
	f := &proxy.Filter{}
	for _, e := range []struct {
		flag, text string
		into       *proxy.Expressions
	}{
		{"accept-hosts", o.AcceptHosts, &f.AcceptHosts}, {"accept-paths", o.AcceptPaths, &f.AcceptPaths},
		{"reject-paths", o.RejectPaths, &f.RejectPaths}, {"reject-methods", o.RejectMethods, &f.RejectMethods},
	} {
		var err error
		if *e.into, err = proxy.ParseExpressions(e.text); err != nil {
			return nil, fmt.Errorf("--%s: %w", e.flag, err)
		}
	}
	return f, nil
}

// runProxy serves until ctx ends.
func runProxy(ctx context.Context, o *proxyOptions) error {
	filter, err := o.filter()
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	logger := log.New(o.Err, "", log.LstdFlags)
	l, err := o.listen(ctx)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: proxy.NewHandler(proxy.Config{
			API: c.Client().RoundTripper(), APIPrefix: o.APIPrefix, Filter: filter, Files: o.Files, FilesPrefix: o.FilesPrefix, Log: logger,
		}),
		ErrorLog:          logger,
		ReadHeaderTimeout: 30 * time.Second,
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Fprintf(o.Out, "Starting to serve on %s\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return ctx.Err()
}

func (o *proxyOptions) listen(ctx context.Context) (net.Listener, error) {
	if o.UnixSocket == "" {
		lc := net.ListenConfig{KeepAlive: o.KeepAlive}
		return lc.Listen(ctx, "tcp", net.JoinHostPort(o.Address, strconv.Itoa(o.Port)))
	}
	if info, err := os.Lstat(o.UnixSocket); err == nil && info.Mode()&fs.ModeSocket != 0 {
		os.Remove(o.UnixSocket) // of a previous run
	}
	defer syscall.Umask(syscall.Umask(0o077)) // the socket is for this user only
	return net.Listen("unix", o.UnixSocket)
}
