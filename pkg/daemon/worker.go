package daemon

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// Worker holds the flags of a daemon that is a client of the API and serves only health
// and metrics.
type Worker struct {
	Options
	kubeconfig string
	secure     Secure
}

// AddFlags registers the flags; port is the default port.
func (w *Worker) AddFlags(fs *pflag.FlagSet, port int) {
	w.Options.AddFlags(fs)
	fs.StringVar(&w.kubeconfig, "kubeconfig", "", "kubeconfig file for the API server (default: the service account of the pod)")
	w.secure.AddFlags(fs, port)
}

// Tools are the objects that such a daemon works with.
type Tools struct {
	API      client.Config // the configuration of Client
	Client   *client.Client
	Registry *prometheus.Registry
	Health   *Health
	Log      *slog.Logger
}

// Tools builds the tools from the flags; userAgent is the daemon's name.
func (w *Worker) Tools(userAgent string, log *slog.Logger) (Tools, error) {
	t := Tools{Registry: Metrics(), Health: &Health{}, Log: log}
	var err error
	if t.API, err = kubeconfig.ForDaemon(w.kubeconfig, userAgent); err != nil {
		return t, err
	}
	t.Client, err = client.New(scheme.New(), t.API)
	return t, err
}

// Run runs work, and beside it serves health and metrics, follows the API servers'
// addresses and pings systemd's watchdog. It blocks until ctx ends or one of them fails.
func (w *Worker) Run(ctx context.Context, t Tools, work func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.secure.Serve(ctx, Mux(t.Health, t.Registry), t.Client, t.Log) })
	g.Go(func() error { return work(ctx) })
	g.Go(func() error { return kubeconfig.Follow(ctx, t.Client, w.kubeconfig, t.Log) })
	g.Go(func() error { return Watchdog(ctx, t.Health.Live) })
	NotifyReady()
	defer NotifyStopping()
	return g.Wait()
}
