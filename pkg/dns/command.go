package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/daemon"
	"podium/pkg/scheme"
)

// options are the flags of cluster-dns: cfg's, and those of the process.
type options struct {
	daemon.Options
	cfg                               Config
	kubeconfig, bind, health, metrics string
	resolvConf                        string
}

// The values of --pods.
const (
	podsInsecure = "insecure"
	podsDisabled = "disabled"
)

// NewCommand returns the cluster-dns command.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := o.Command("cluster-dns", "Serve the DNS names of Services and pods", nil, func(cmd *cobra.Command) error {
		if err := o.complete(); err != nil {
			return err
		}
		return o.run(cmd.Context(), o.Logger(cmd.ErrOrStderr()))
	})
	f, c := cmd.Flags(), &o.cfg
	o.Options.AddFlags(f)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file for the API server (default: the service account of the pod)")
	f.StringVar(&o.bind, "bind-address", "0.0.0.0:53", "address to serve DNS on, by UDP and TCP")
	f.StringVar(&o.health, "healthz-bind-address", "0.0.0.0:8080", "address to serve /healthz, /livez and /readyz on; empty: disabled")
	f.StringVar(&o.metrics, "metrics-bind-address", "0.0.0.0:9153", "address to serve /metrics on; empty: disabled")
	daemon.ParsedSliceVar(f, &c.Upstream, "upstream", nil, serverAddress, "upstream name servers for names outside the cluster, as IP or IP:port (default: those of --resolv-conf)")
	f.StringVar(&o.resolvConf, "resolv-conf", "/etc/resolv.conf", "resolver configuration with the upstream name servers, used without --upstream; empty: do not forward")
	daemon.ParsedVar(f, &c.Pods, "pods", podsInsecure, parsePods, "pod records (1-2-3-4.NAMESPACE.pod): insecure answers for any address, disabled for none")
	f.StringVar(&c.Domain, "cluster-domain", defaultDomain, "domain of the cluster")
	f.DurationVar(&c.TTL, "ttl", defaultTTL, "TTL of the cluster's records")
	f.IntVar(&c.CacheBytes, "cache-bytes", defaultCacheBytes, "size in bytes of the cache of upstream answers; 0: no cache")
	f.DurationVar(&c.CacheTTL, "cache-max-ttl", defaultCacheTTL, "maximum TTL of cached upstream answers; 0: no cache")
	f.IntVar(&c.MaxForwards, "max-forwards", defaultMaxForwards, "maximum number of concurrent upstream queries; more are answered with SERVFAIL")
	f.IntVar(&c.MaxConns, "max-connections", defaultMaxConns, "maximum number of concurrent TCP connections")
	return cmd
}

func parsePods(text string) (bool, error) {
	if text != podsInsecure && text != podsDisabled {
		return false, fmt.Errorf("use %s or %s", podsInsecure, podsDisabled)
	}
	return text == podsInsecure, nil
}

// complete validates the flags and reads the servers of --resolv-conf if there is no
// --upstream. It returns all errors, joined.
func (o *options) complete() error {
	errs := []error{o.cfg.Validate()}
	for flag, address := range map[string]string{"bind-address": o.bind, "healthz-bind-address": o.health, "metrics-bind-address": o.metrics} {
		if _, _, err := net.SplitHostPort(address); err != nil && (address != "" || flag == "bind-address") {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	if len(o.cfg.Upstream) > 0 || o.resolvConf == "" {
		return errors.Join(errs...)
	}
	conf, err := dns.ClientConfigFromFile(o.resolvConf)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("--resolv-conf: %w", err))...)
	}
	for _, text := range conf.Servers {
		server, err := serverAddress(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--resolv-conf: name server %w", err))
			continue
		}
		o.cfg.Upstream = append(o.cfg.Upstream, server)
	}
	return errors.Join(errs...)
}

// run serves until ctx ends or a part fails.
func (o *options) run(ctx context.Context, log *slog.Logger) error {
	api, err := kubeconfig.ForDaemon(o.kubeconfig, "cluster-dns")
	if err != nil {
		return err
	}
	cfg := o.cfg
	cfg.Log, cfg.Registry, cfg.Exchange = log, daemon.Metrics(), NetExchange
	if cfg.Client, err = client.New(scheme.New(), api); err != nil {
		return err
	}
	listen := net.ListenConfig{}
	if cfg.PacketConn, err = listen.ListenPacket(ctx, "udp", o.bind); err != nil {
		return err
	}
	defer cfg.PacketConn.Close()
	if cfg.Listener, err = listen.Listen(ctx, "tcp", o.bind); err != nil {
		return err
	}
	defer cfg.Listener.Close()
	server, err := New(cfg)
	if err != nil {
		return err
	}
	health := &daemon.Health{}
	health.Add("informers", server.Ready)

	g, ctx := errgroup.WithContext(ctx)
	serve := func(address string, h http.Handler) {
		if address != "" {
			g.Go(func() error {
				return daemon.Serve(ctx, daemon.ServeConfig{Address: address, Handler: h, Log: log})
			})
		}
	}
	if o.health == o.metrics {
		serve(o.health, daemon.Mux(health, cfg.Registry))
	} else {
		serve(o.health, daemon.Mux(health, nil))
		serve(o.metrics, daemon.Mux(nil, cfg.Registry))
	}
	g.Go(func() error { return server.Run(ctx) })
	g.Go(func() error { return daemon.Watchdog(ctx, health.Live) })
	daemon.NotifyReady()
	defer daemon.NotifyStopping()
	log.Info("serving names", "domain", cfg.Domain, "address", o.bind, "upstream", cfg.Upstream)
	return g.Wait()
}
