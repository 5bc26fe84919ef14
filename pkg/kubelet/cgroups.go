package kubelet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/pids"
	"podium/pkg/kubelet/resources"
)

// pidBounds are the maximum numbers of process ids of all pods and of one pod.
type pidBounds struct{ all, pod int64 }

// processIDs computes how many process ids pods may have and sets up the monitor
// of their use.
func (o *options) processIDs(cfg *Config) (pidBounds, error) {
	machine := pids.Machine{Proc: "/proc", Cgroup: "/sys/fs/cgroup"}
	most, err := machine.Max()
	if err != nil {
		return pidBounds{}, err
	}
	_, threshold, err := o.eviction.thresholds()
	if err != nil {
		return pidBounds{}, err
	}
	cfg.Machine.PIDs = &pids.Monitor{Read: machine.Usage, Threshold: threshold, Transition: o.eviction.transition, Now: time.Now}
	var reserved *resource.Quantity
	if q, ok := cfg.Reserved[pids.Resource]; ok {
		reserved = &q
	}
	b := pidBounds{all: pids.Allocatable(most, reserved)}
	if b.all == 0 {
		return b, fmt.Errorf("--kube-reserved and --system-reserved leave no process ids for pods: the node has %d", most)
	}
	b.pod = pids.PodLimit(o.podPIDs, b.all)
	cfg.Log.Info("process ids", "node", most, "pods", b.all, "pod", b.pod)
	return b, nil
}

// cgroups returns the implementation for --cgroup-driver; by default, for the
// driver that the runtime reports.
func (o *options) cgroups(ctx context.Context, cfg *Config, bounds pidBounds) (resources.Cgroups, error) {
	driver := o.cgroupDriver
	if driver == driverAuto {
		driver = driverCgroupfs
		res, err := cfg.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		switch {
		case err == nil && res.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
			driver = driverSystemd
		case err != nil && !cri.Unimplemented(err):
			return nil, fmt.Errorf("get the runtime's cgroup driver: %w", err)
		}
	}
	cfg.Log.Info("cgroups", "driver", driver, "root", o.cgroupRoot)
	if driver == driverNone {
		return resources.None{}, nil
	}
	options := resources.Options{Root: o.cgroupRoot, PIDs: bounds.all, PodPIDs: bounds.pod, Unbound: slices.Contains(o.enforce, enforceNone), Unthrottled: cfg.Placement.Unthrottled, Log: cfg.Log}
	if driver == driverSystemd {
		bus, err := resources.ConnectSystemd(ctx)
		if err != nil {
			return nil, err
		}
		options.Systemd = bus
	}
	return resources.NewFS(options), nil
}
