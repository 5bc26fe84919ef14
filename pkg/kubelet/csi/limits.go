package csi

import (
	"context"
	"fmt"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/plugins"
)

// How often the limits of drivers are looked at, and how often the kubelet asks whether a
// driver without nodeAllocatableUpdatePeriodSeconds has got it.
const (
	limitsPeriod = 10 * time.Second // the least that the API accepts
	askPeriod    = 5 * time.Minute
)

// updateLimits asks drivers whose CSIDriver says so periodically how many volumes the node
// can have, until ctx ends.
func (d *Driver) updateLimits(ctx context.Context) {
	due := map[string]time.Time{} // by driver
	for backoff.Sleep(ctx, limitsPeriod) == nil {
		now := time.Now()
		for _, p := range d.registered() {
			if now.Before(due[p.Name]) {
				continue
			}
			period, err := d.updateLimit(ctx, p, !due[p.Name].IsZero())
			if err != nil && ctx.Err() == nil {
				d.Log.Warn("update the limit of volumes failed", "driver", p.Name, "error", err)
			}
			due[p.Name] = now.Add(period)
		}
	}
}

func (d *Driver) registered() (out []plugins.Plugin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.drivers {
		out = append(out, p)
	}
	return out
}

// updateLimit updates the entry of a driver in the CSINode, and returns when to do that
// again. again is false the first time: the registration has just done it.
func (d *Driver) updateLimit(ctx context.Context, p plugins.Plugin, again bool) (time.Duration, error) {
	obj, err := d.object(ctx, p.Name)
	if err != nil || obj == nil || obj.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return askPeriod, err
	}
	period := time.Duration(*obj.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
	if !again {
		return period, nil
	}
	s, err := d.dial(p)
	if err != nil {
		return period, err
	}
	defer s.close()
	info, err := s.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
	if err != nil {
		return period, fmt.Errorf("NodeGetInfo: %w", err)
	}
	if info.NodeId == "" {
		return period, fmt.Errorf("NodeGetInfo: the driver returned no node id")
	}
	d.node.Lock()
	defer d.node.Unlock()
	return period, d.updateCSINode(ctx, p.Name, nodeDriver(p.Name, info))
}
