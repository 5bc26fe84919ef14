package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/daemon"
)

// options are the flags, and what a config file may say besides.
type options struct {
	daemon.Worker `json:"-"`
	cfg           Config

	// Only in the config file, as upstream's.
	PodInitialBackoffSeconds int64 `json:"podInitialBackoffSeconds"`
	PodMaxBackoffSeconds     int64 `json:"podMaxBackoffSeconds"`
}

// NewCommand is the daemon's command line.
func NewCommand() *cobra.Command {
	o := &options{PodInitialBackoffSeconds: 1, PodMaxBackoffSeconds: 10}
	o.cfg = Config{
		SchedulerName: corev1.DefaultSchedulerName, Election: daemon.DefaultElection(leaseName), Binds: 32, Seed: uint64(time.Now().UnixNano()),
	}
	cmd := o.Command("kube-scheduler", "Finds a node for each pod that has none", o, o.run)
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	o.AddFlags(fs, 10259)
	o.cfg.Election.AddFlags(fs)
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

func (o *options) run(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	cfg := o.cfg
	cfg.Queue.InitialBackoff = time.Duration(o.PodInitialBackoffSeconds) * time.Second
	cfg.Queue.MaxBackoff = time.Duration(o.PodMaxBackoffSeconds) * time.Second
	tools, err := o.Tools(cmd.Name(), o.Logger(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	cfg.Client, cfg.Registry, cfg.Health, cfg.Log = tools.Client, tools.Registry, tools.Health, tools.Log
	return o.Run(cmd.Context(), tools, func(ctx context.Context) error { return Run(ctx, cfg) })
}
