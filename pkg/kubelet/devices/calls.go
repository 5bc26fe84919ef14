package devices

import (
	"context"
	"fmt"
	"slices"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// prefer asks the plugin which devices of a choice it would give a container.
func (p *plugin) prefer(ctx context.Context, c choice, need int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, preferTimeout)
	defer cancel()
	available := slices.Concat(c.free, c.reused)
	slices.Sort(available)
	r, err := p.client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{{
		AvailableDeviceIDs: available, MustIncludeDeviceIDs: c.reused, AllocationSize: int32(need),
	}}})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(r.ContainerResponses) == 0 {
		return nil, nil // it has no preference
	}
	return r.ContainerResponses[0].GetDeviceIDs(), nil
}

// allocate has the plugin prepare devices for a container.
func (p *plugin) allocate(ctx context.Context, ids []string) (*api.ContainerAllocateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	r, err := p.client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	if len(r.ContainerResponses) == 0 || r.ContainerResponses[0] == nil {
		return nil, fmt.Errorf("no containers return in allocation response of %s", p.resource)
	}
	return r.ContainerResponses[0], nil
}

// preStart tells the plugin that a container with the devices is about to be created.
func (p *plugin) preStart(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, preStartTimeout)
	defer cancel()
	if _, err := p.client.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}
