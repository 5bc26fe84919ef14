package controllers

import (
	"context"

	"podium/pkg/controller/informers"
	"podium/pkg/controller/manager"
)

// Run runs kube-controller-manager until ctx ends; with leader election, its controllers run
// only while this replica leads.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.CheckNames(specs(&cfg)); err != nil {
		return err
	}
	cfg.metrics = newMetrics(cfg.Registry)
	return manager.Run(ctx, &cfg.Config, func() (manager.Term, error) {
		return manager.Term{Informers: informers.New(cfg.Client, cfg.Log), Controllers: specs(&cfg)}, nil
	})
}
