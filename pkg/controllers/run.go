package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"podium/pkg/client/events"
	"podium/pkg/client/leaderelection"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/views"
)

// Run runs the controllers until ctx ends; with leader election, while this
// replica leads. A replica that lost its lead has an error to tell: what it
// knows may be out of date, the next one starts afresh.
func Run(ctx context.Context, cfg Config) error {
	cfg.setDefaults()
	if err := checkNames(&cfg); err != nil {
		return err
	}
	metrics := loop.NewMetrics(cfg.Registry)
	var leading atomic.Pointer[views.Views] // a replica that waits for its turn is ready too
	cfg.Health.Add("informer-sync", func() error {
		if v := leading.Load(); v != nil && !v.Synced() {
			return errors.New("the first lists are not complete")
		}
		return nil
	})
	lead := func(ctx context.Context) error {
		v := views.New(cfg.Client, cfg.Log)
		leading.Store(v)
		return runAll(ctx, &cfg, v, metrics)
	}
	var err error
	if cfg.LeaderElect {
		err = leaderelection.Run(ctx, leaderelection.Config{
			Client: cfg.Client, Namespace: cfg.LeaseSpace, Name: cfg.LeaseName, Identity: cfg.Identity,
			LeaseDuration: cfg.LeaseDuration, RenewDeadline: cfg.RenewDeadline, RetryPeriod: cfg.RetryPeriod, Log: cfg.Log,
		}, lead)
	} else {
		err = lead(ctx)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// runAll builds everything, then runs it: nothing may listen to an informer
// that runs already.
func runAll(ctx context.Context, cfg *Config, v *views.Views, metrics *loop.Metrics) error {
	runs := []func(context.Context) error{v.Run}
	for _, ctl := range enabled(cfg) {
		own := cfg.Client
		if cfg.ClientFor != nil {
			var err error
			if own, err = cfg.ClientFor(ctl.account); err != nil {
				return fmt.Errorf("%s: %w", ctl.name, err)
			}
		}
		recorder := events.New(own, ctl.component, "", cfg.Log)
		r, err := ctl.build(kit.Kit{
			Client: own, Views: v, Events: recorder, Workers: ctl.workers, Log: cfg.Log, Metrics: metrics,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", ctl.name, err)
		}
		runs = append(runs, recorder.Run, r.Run)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range runs {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}
