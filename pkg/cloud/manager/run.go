package manager

import (
	"context"

	"podium/pkg/cloud"
	"podium/pkg/controllers/crew"
	"podium/pkg/controllers/views"
)

// Run runs the provider's controllers until ctx ends; with leader election,
// while this replica leads. What is wrong with the provider's configuration is
// told at once.
func Run(ctx context.Context, cfg Config) error {
	p, err := cfg.Provider(cloud.Setup{Config: cfg.CloudConfig, ClusterName: cfg.ClusterName})
	if err != nil {
		return err
	}
	if err := cfg.CheckNames(members(&cfg, p)); err != nil {
		return err
	}
	return crew.Run(ctx, &cfg.Config, func() (crew.Shift, error) {
		v := views.Cloud(cfg.Client, cfg.Log)
		p, err := cfg.Provider(cloud.Setup{
			Config: cfg.CloudConfig, ClusterName: cfg.ClusterName, Client: cfg.Client, Services: v.Services, Log: cfg.Log,
		})
		if err != nil {
			return crew.Shift{}, err
		}
		return crew.Shift{Views: v, Members: members(&cfg, p)}, nil
	})
}
