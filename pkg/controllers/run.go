package controllers

import (
	"context"

	"podium/pkg/controllers/crew"
	"podium/pkg/controllers/views"
)

// Run runs the controllers until ctx ends; with leader election, while this
// replica leads.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.CheckNames(members(&cfg)); err != nil {
		return err
	}
	return crew.Run(ctx, &cfg.Config, func() (crew.Shift, error) {
		return crew.Shift{Views: views.New(cfg.Client, cfg.Log), Members: members(&cfg)}, nil
	})
}
