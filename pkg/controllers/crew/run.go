package crew

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"podium/pkg/client/events"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/views"
)

// Shift is what a replica works with while it leads: what an earlier lead knew
// may be out of date, so it is made afresh each time.
type Shift struct {
	Views   *views.Views
	Members []Member
}

// Run runs the controllers until ctx ends; with leader election, while this
// replica leads. begin finds what cfg lacked filled in.
func Run(ctx context.Context, cfg *Config, begin func() (Shift, error)) error {
	cfg.setDefaults()
	metrics := loop.NewMetrics(cfg.Registry)
	var leading atomic.Pointer[views.Views] // a replica that waits for its turn is ready too
	cfg.Health.Add("informer-sync", func() error {
		if v := leading.Load(); v != nil && !v.Synced() {
			return errors.New("the first lists are not complete")
		}
		return nil
	})
	work := func(ctx context.Context) error {
		shift, err := begin()
		if err != nil {
			return err
		}
		leading.Store(shift.Views)
		return runAll(ctx, cfg, shift, metrics)
	}
	err := cfg.Lead(ctx, cfg.Client, cfg.Log, nil, work)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// runAll builds everything, then runs it: nothing may listen to an informer
// that runs already.
func runAll(ctx context.Context, cfg *Config, shift Shift, metrics *loop.Metrics) error {
	runs := []func(context.Context) error{shift.Views.Run}
	for _, m := range enabled(shift.Members, cfg.Controllers) {
		own := cfg.Client
		if cfg.ClientFor != nil {
			var err error
			if own, err = cfg.ClientFor(m.Account); err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
		}
		recorder := events.New(own, m.Component, "", cfg.Log)
		r, err := m.Build(kit.Kit{
			Client: own, Views: shift.Views, Events: recorder, Workers: m.Workers, Log: cfg.Log, Metrics: metrics,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		runs = append(runs, recorder.Run, r.Run)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range runs {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}
