package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/daemon"
	"podium/pkg/scheme"
)

// options are the flags, and what a config file may say besides.
type options struct {
	daemon.Options `json:"-"`
	kubeconfig     string
	secure         daemon.Secure
	cfg            Config

	// Only in the config file, as upstream's.
	PodInitialBackoffSeconds int64 `json:"podInitialBackoffSeconds"`
	PodMaxBackoffSeconds     int64 `json:"podMaxBackoffSeconds"`
}

// NewCommand is the daemon's command line.
func NewCommand() *cobra.Command {
	o := &options{PodInitialBackoffSeconds: 1, PodMaxBackoffSeconds: 10}
	o.cfg = Config{
		SchedulerName: corev1.DefaultSchedulerName, LeaderElect: true,
		LeaseName: "kube-scheduler", LeaseSpace: "kube-system",
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Binds: 32, Seed: uint64(time.Now().UnixNano()),
	}
	cmd := &cobra.Command{
		Use:   "kube-scheduler",
		Short: "Finds a node for each pod that has none",
		Args:  cobra.NoArgs,
	}
	o.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := daemon.LoadConfig(cmd, o.ConfigFile, o); err != nil {
			return err
		}
		return o.run(cmd.Context(), cmd)
	}
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	o.AddFlags(fs)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says where the API is and who asks; default: the pod's service account")
	o.secure.AddFlags(fs, 10259)
	fs.BoolVar(&o.cfg.LeaderElect, "leader-elect", o.cfg.LeaderElect, "work only while holding the lease: for several replicas")
	fs.StringVar(&o.cfg.LeaseName, "leader-elect-resource-name", o.cfg.LeaseName, "name of the lease")
	fs.StringVar(&o.cfg.LeaseSpace, "leader-elect-resource-namespace", o.cfg.LeaseSpace, "namespace of the lease")
	fs.DurationVar(&o.cfg.LeaseDuration, "leader-elect-lease-duration", o.cfg.LeaseDuration, "how long a silent leader is respected")
	fs.DurationVar(&o.cfg.RenewDeadline, "leader-elect-renew-deadline", o.cfg.RenewDeadline, "how long a leader works on without a renewal")
	fs.DurationVar(&o.cfg.RetryPeriod, "leader-elect-retry-period", o.cfg.RetryPeriod, "time between attempts to get or renew the lease")
	fs.StringVar(&o.cfg.SchedulerName, "scheduler-name", o.cfg.SchedulerName, "schedule the pods that name this scheduler")
	fs.IntVar(&o.cfg.Binds, "parallel-binds", o.cfg.Binds, "how many pods are bound at a time")
}

func (o *options) validate() error {
	if o.cfg.Binds < 1 {
		return fmt.Errorf("--parallel-binds is %d: at least 1 is needed", o.cfg.Binds)
	}
	if o.PodInitialBackoffSeconds < 1 || o.PodMaxBackoffSeconds < o.PodInitialBackoffSeconds {
		return fmt.Errorf("podInitialBackoffSeconds %d and podMaxBackoffSeconds %d: the first must be at least 1 and not above the second",
			o.PodInitialBackoffSeconds, o.PodMaxBackoffSeconds)
	}
	return nil
}

func (o *options) run(ctx context.Context, cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	cfg := o.cfg
	cfg.Log = o.Logger(cmd.ErrOrStderr())
	cfg.Queue.InitialBackoff = time.Duration(o.PodInitialBackoffSeconds) * time.Second
	cfg.Queue.MaxBackoff = time.Duration(o.PodMaxBackoffSeconds) * time.Second
	api, err := kubeconfig.ForDaemon(o.kubeconfig, "kube-scheduler")
	if err != nil {
		return err
	}
	if cfg.Client, err = client.New(scheme.New(), api); err != nil {
		return err
	}
	registry := daemon.Metrics()
	cfg.Registry = registry
	cfg.Health = &daemon.Health{}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.secure.Serve(ctx, daemon.Mux(cfg.Health, registry), cfg.Client, cfg.Log) })
	g.Go(func() error { return Run(ctx, cfg) })
	g.Go(func() error { return kubeconfig.Follow(ctx, cfg.Client, o.kubeconfig, cfg.Log) })
	g.Go(func() error { return daemon.Watchdog(ctx, cfg.Health.Live) })
	daemon.NotifyReady()
	defer daemon.NotifyStopping()
	return g.Wait()
}
