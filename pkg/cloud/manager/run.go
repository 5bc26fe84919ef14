package manager

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cloud"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/manager"
)

// Run runs the provider's controllers until ctx ends; with leader election, only while this
// replica leads. It returns errors in the provider's configuration at once.
func Run(ctx context.Context, cfg Config) error {
	p, err := cfg.Provider(cloud.Setup{Config: cfg.CloudConfig, ClusterName: cfg.ClusterName})
	if err != nil {
		return err
	}
	if err := cfg.CheckNames(specs(&cfg, p)); err != nil {
		return err
	}
	return manager.Run(ctx, &cfg.Config, func() (manager.Term, error) {
		set := informers.New(cfg.Client, cfg.Log)
		p, err := cfg.Provider(cloud.Setup{
			Config: cfg.CloudConfig, ClusterName: cfg.ClusterName, Client: cfg.Client, Services: informers.For[*corev1.Service](set), Log: cfg.Log,
		})
		if err != nil {
			return manager.Term{}, err
		}
		return manager.Term{Informers: set, Controllers: specs(&cfg, p)}, nil
	})
}
