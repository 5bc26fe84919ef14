package local

import (
	"context"
	"os"

	"podium/pkg/cluster/addons"
)

func (c *Config) applyMetrics(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(c.path("pki", "kubelet-ca.crt"))
	if err != nil {
		return err
	}
	return addons.ApplyMetrics(ctx, cl, addons.Metrics{KubeletCA: ca})
}
