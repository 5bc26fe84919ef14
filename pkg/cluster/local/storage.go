package local

import (
	"context"

	"podium/pkg/cluster/addons"
)

func (c *Config) createStorageClass(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	return addons.CreateStorageClass(ctx, cl, true)
}
