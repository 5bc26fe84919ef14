package proxy

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/sync/errgroup"

	"podium/pkg/client/kubeconfig"
	"podium/pkg/daemon"
	"podium/pkg/l2announce"
	"podium/pkg/podnetwork"
	"podium/pkg/proxy/services"
)

// Daemon holds the parts that kube-proxy runs.
type Daemon struct {
	Config
	PodNetwork     *podnetwork.Config // nil: another program provides the pod network
	Announce       *l2announce.Config // nil: this node announces no load-balancer addresses
	HealthzAddress string             // empty: not served
	MetricsAddress string             // empty: not served
	Kubeconfig     string             // is updated with the cluster's API servers; empty: only the client's servers are used
	// Sysctl sets a sysctl given by its path below /proc/sys.
	Sysctl func(path, value string) error
}

// Run runs kube-proxy until ctx ends or a part fails. It leaves the rules and the pod
// network in place.
func Run(ctx context.Context, d Daemon) error {
	if d.PodNetwork != nil {
		d.PodHooks = podnetwork.Hooks()
	}
	p, err := New(d.Config)
	if err != nil {
		return err
	}
	if d.Rules.LocalhostNodePorts && d.Rules.Family() == services.IPv4 {
		if err := d.Sysctl("net/ipv4/conf/all/route_localnet", "1"); err != nil {
			d.Log.Warn("enable node ports on 127.0.0.1 failed", "error", err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	if d.Announce != nil {
		announcer, err := p.announcer(*d.Announce)
		if err != nil {
			return err
		}
		g.Go(func() error { return announcer.Run(ctx) })
	}
	if d.PodNetwork != nil {
		p.SetPodRules(podnetwork.NoRules())
		d.PodNetwork.SetRules = p.SetPodRules
		network := podnetwork.New(*d.PodNetwork)
		g.Go(func() error { return network.Run(ctx) })
	}
	if servers, ok := d.Health.(*HealthServers); ok {
		servers.Healthy = p.Healthy
		g.Go(func() error { return servers.Run(ctx) })
	}
	if d.Kubeconfig != "" {
		g.Go(func() error { return kubeconfig.Follow(ctx, d.Client, d.Kubeconfig, d.Log) })
	}
	if d.Events != nil {
		g.Go(func() error { return d.Events.Run(ctx) })
	}
	serve := func(address string, h http.Handler) {
		if address != "" {
			g.Go(func() error {
				return daemon.Serve(ctx, daemon.ServeConfig{Address: address, Handler: h, Log: d.Log})
			})
		}
	}
	serve(d.HealthzAddress, p.Handler())
	serve(d.MetricsAddress, p.metricsHandler())
	g.Go(func() error { return p.Run(ctx) })
	g.Go(func() error {
		if p.waitSynced(ctx) == nil {
			daemon.NotifyReady()
		}
		defer daemon.NotifyStopping()
		return daemon.Watchdog(ctx, p.alive)
	})
	return g.Wait()
}

// alive is the liveness check for the service manager, which restarts a proxy that
// cannot write its rules for long.
func (p *Proxy) alive() error {
	if !p.Healthy() {
		return errors.New("the rules do not keep up with the cluster")
	}
	return nil
}

// metricsHandler serves /metrics, and /proxyMode as upstream does.
func (p *Proxy) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", daemon.MetricsHandler(p.cfg.Registry))
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("iptables")) })
	return mux
}
