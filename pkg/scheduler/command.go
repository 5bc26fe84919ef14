package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/daemon"
	"podium/pkg/scheduler/extender"
	"podium/pkg/scheduler/plugins"
)

// options are the flags, which are bound to cfg, and what only the config file can
// set, as upstream.
type options struct {
	daemon.Worker `json:"-"`
	cfg           Config

	PodInitialBackoffSeconds int64 `json:"podInitialBackoffSeconds"`
	PodMaxBackoffSeconds     int64 `json:"podMaxBackoffSeconds"`

	Profiles  []plugins.Profile `json:"profiles"`
	Extenders []extender.Config `json:"extenders"`
}

// NewCommand returns the command of kube-scheduler.
func NewCommand() *cobra.Command {
	o := &options{PodInitialBackoffSeconds: 1, PodMaxBackoffSeconds: 10}
	o.cfg = Config{Election: daemon.DefaultElection(leaseName), Seed: uint64(time.Now().UnixNano())}
	o.cfg.SchedulerName, o.cfg.Binds = corev1.DefaultSchedulerName, defaultBinds
	cmd := o.Command("kube-scheduler", "Assign pods to nodes", o, o.run)
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.cfg
	fs.SortFlags = false
	o.AddFlags(fs, 10259)
	c.Election.AddFlags(fs)
	fs.StringVar(&c.SchedulerName, "scheduler-name", c.SchedulerName, "schedule the pods whose spec.schedulerName is this name")
	fs.IntVar(&c.Binds, "parallel-binds", c.Binds, "maximum number of pods bound at a time")
}

func (o *options) validate() error {
	if o.cfg.Binds < 1 {
		return fmt.Errorf("--parallel-binds is %d: at least 1 is needed", o.cfg.Binds)
	}
	if o.PodInitialBackoffSeconds < 1 || o.PodMaxBackoffSeconds < o.PodInitialBackoffSeconds {
		return fmt.Errorf("podInitialBackoffSeconds %d and podMaxBackoffSeconds %d: the first must be at least 1 and not above the second",
			o.PodInitialBackoffSeconds, o.PodMaxBackoffSeconds)
	}
	return errors.Join(o.validateProfiles(), extender.Validate(o.Extenders))
}

// validateProfiles also sets their default names.
func (o *options) validateProfiles() error {
	var errs []error
	seen := map[string]bool{}
	for i := range o.Profiles {
		p := &o.Profiles[i]
		p.SchedulerName = cmp.Or(p.SchedulerName, corev1.DefaultSchedulerName)
		if seen[p.SchedulerName] {
			errs = append(errs, fmt.Errorf("profiles[%d]: there is another profile with schedulerName %s", i, p.SchedulerName))
		}
		seen[p.SchedulerName] = true
		if _, err := p.Build(nil); err != nil {
			errs = append(errs, fmt.Errorf("profiles[%d]: %w", i, err))
		}
	}
	if name := o.cfg.SchedulerName; len(o.Profiles) > 0 && name != corev1.DefaultSchedulerName && !seen[name] {
		errs = append(errs, fmt.Errorf("--scheduler-name is %s, but no profile has this schedulerName", name))
	}
	return errors.Join(errs...)
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	o.cfg.Queue.InitialBackoff = time.Duration(o.PodInitialBackoffSeconds) * time.Second
	o.cfg.Queue.MaxBackoff = time.Duration(o.PodMaxBackoffSeconds) * time.Second
	tools, err := o.Tools(cmd.Name(), o.Logger(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	cfg := o.cfg
	cfg.Profiles, cfg.Extenders = o.Profiles, o.Extenders
	cfg.Client, cfg.Registry, cfg.Health, cfg.Log = tools.Client, tools.Registry, tools.Health, tools.Log
	return o.Run(cmd.Context(), tools, func(ctx context.Context) error { return Run(ctx, cfg) })
}
