package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"podium/pkg/client/events"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Term is what a replica works with while it leads. Each term needs a new one: the caches
// of an earlier term may be stale.
type Term struct {
	Informers   *informers.Set
	Controllers []controller.Spec
}

// Run runs the controllers until ctx ends; with leader election, only while this replica
// leads. It sets the defaults of cfg before it calls begin, once for each term.
func Run(ctx context.Context, cfg *Config, begin func() (Term, error)) error {
	cfg.setDefaults()
	metrics := loop.NewMetrics(cfg.Registry)
	var leading atomic.Pointer[informers.Set] // a replica that is not leading is ready, too
	cfg.Health.Add("informer-sync", func() error {
		if set := leading.Load(); set != nil && !set.Synced() {
			return errors.New("the first lists are not complete")
		}
		return nil
	})
	lead := func(ctx context.Context) error {
		term, err := begin()
		if err != nil {
			return err
		}
		runs, err := build(cfg, term, metrics)
		if err != nil {
			return err
		}
		leading.Store(term.Informers)
		g, ctx := errgroup.WithContext(ctx)
		for _, run := range runs {
			g.Go(func() error { return run(ctx) })
		}
		return g.Wait()
	}
	err := cfg.Lead(ctx, cfg.Client, cfg.Log, showLeading(cfg.Registry, cfg.LeaseName), lead)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// build builds all controllers before anything runs: event handlers must be registered
// before the informers start.
func build(cfg *Config, term Term, metrics *loop.Metrics) (runs []func(context.Context) error, err error) {
	for _, spec := range enabled(term.Controllers, cfg.Controllers) {
		account := cmp.Or(spec.Account, spec.Name)
		own := cfg.Client
		if cfg.ClientFor != nil {
			if own, err = cfg.ClientFor(account); err != nil {
				return nil, fmt.Errorf("%s: %w", spec.Name, err)
			}
		}
		c := controller.Context{
			Client: own, Informers: term.Informers, Own: informers.New(own, cfg.Log),
			Events:  events.New(own, cmp.Or(spec.Component, account), "", cfg.Log),
			Workers: spec.Workers, Log: cfg.Log, Metrics: metrics,
		}
		r, err := spec.New(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spec.Name, err)
		}
		runs = append(runs, c.Own.Run, c.Events.Run, r.Run)
	}
	return append(runs, term.Informers.Run), nil
}
