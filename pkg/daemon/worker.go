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

// Worker is a daemon that works for the API and serves nobody: it has a
// kubeconfig, and a port for what it tells of itself. It holds those flags.
type Worker struct {
	Options
	kubeconfig string
	secure     Secure
}

// AddFlags declares the flags; port is the daemon's own.
func (w *Worker) AddFlags(fs *pflag.FlagSet, port int) {
	w.Options.AddFlags(fs)
	fs.StringVar(&w.kubeconfig, "kubeconfig", "", "file that says where the API is and who asks; default: the pod's service account")
	w.secure.AddFlags(fs, port)
}

// Tools are what such a daemon works with.
type Tools struct {
	API      client.Config // what Client is made of
	Client   *client.Client
	Registry *prometheus.Registry
	Health   *Health
	Log      *slog.Logger
}

// Tools are made of the flags; userAgent is the daemon's name.
func (w *Worker) Tools(userAgent string, log *slog.Logger) (Tools, error) {
	t := Tools{Registry: Metrics(), Health: &Health{}, Log: log}
	var err error
	if t.API, err = kubeconfig.ForDaemon(w.kubeconfig, userAgent); err != nil {
		return t, err
	}
	t.Client, err = client.New(scheme.New(), t.API)
	return t, err
}

// Run is the daemon around work: it shows health and metrics, follows the
// API's servers, and gives signs of life.
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
