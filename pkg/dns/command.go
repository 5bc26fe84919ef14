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

// options are the flags of cluster-dns.
type options struct {
	daemon.Options
	kubeconfig, bind, health, metrics string
	upstream                          []string
	resolvConf                        string
	pods                              string
	cfg                               Config
}

// How names of pods by their address are answered.
const (
	podsInsecure = "insecure"
	podsDisabled = "disabled"
)

// NewCommand is cluster-dns.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := o.Command("cluster-dns", "The cluster's name server: names for Services and pods", nil, func(cmd *cobra.Command) error {
		if err := o.complete(); err != nil {
			return err
		}
		return o.run(cmd.Context(), o.Logger(cmd.ErrOrStderr()))
	})
	f := cmd.Flags()
	o.Options.AddFlags(f)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says where the API server is and who we are (default: the service account of the pod)")
	f.StringVar(&o.bind, "bind-address", "0.0.0.0:53", "where to answer, by UDP and TCP")
	f.StringVar(&o.health, "healthz-bind-address", "0.0.0.0:8080", "where to serve /healthz, /livez and /readyz; empty: nowhere")
	f.StringVar(&o.metrics, "metrics-bind-address", "0.0.0.0:9153", "where to serve /metrics; empty: nowhere")
	f.StringSliceVar(&o.upstream, "upstream", nil, "name servers for all names that are not the cluster's, as IP or IP:port (default: those of --resolv-conf)")
	f.StringVar(&o.resolvConf, "resolv-conf", "/etc/resolv.conf", "file that names the servers to ask, without --upstream; empty: ask nobody")
	f.StringVar(&o.pods, "pods", podsInsecure, "names of pods by their address (1-2-3-4.NAMESPACE.pod): insecure answers for any address, disabled for none")
	f.StringVar(&o.cfg.Domain, "cluster-domain", defaultDomain, "domain of the cluster")
	f.DurationVar(&o.cfg.TTL, "ttl", defaultTTL, "how long clients may keep the cluster's names")
	f.IntVar(&o.cfg.CacheBytes, "cache-bytes", defaultCacheBytes, "how much of other servers' answers to keep; 0: nothing")
	f.DurationVar(&o.cfg.CacheTTL, "cache-max-ttl", defaultCacheTTL, "how long other servers' answers are kept at most; 0: not at all")
	f.IntVar(&o.cfg.MaxForwards, "max-forwards", defaultMaxForwards, "how many questions may wait for other servers at a time; more are answered SERVFAIL")
	f.IntVar(&o.cfg.MaxConns, "max-connections", defaultMaxConns, "how many TCP connections clients may hold at a time")
	return cmd
}

// complete reads what the flags name, and reports everything that is wrong at once.
func (o *options) complete() error {
	errs := []error{o.cfg.Validate()}
	o.cfg.Pods = o.pods == podsInsecure
	if o.pods != podsInsecure && o.pods != podsDisabled {
		errs = append(errs, fmt.Errorf("--pods=%q: use %s or %s", o.pods, podsInsecure, podsDisabled))
	}
	for flag, address := range map[string]string{"bind-address": o.bind, "healthz-bind-address": o.health, "metrics-bind-address": o.metrics} {
		if _, _, err := net.SplitHostPort(address); err != nil && (address != "" || flag == "bind-address") {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	servers := o.upstream
	if len(servers) == 0 && o.resolvConf != "" {
		conf, err := dns.ClientConfigFromFile(o.resolvConf)
		if err != nil {
			errs = append(errs, fmt.Errorf("--resolv-conf: %w", err))
		} else {
			servers = conf.Servers
		}
	}
	for _, text := range servers {
		server, err := serverAddress(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("name server: %w", err))
			continue
		}
		o.cfg.Upstream = append(o.cfg.Upstream, server)
	}
	return errors.Join(errs...)
}

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
