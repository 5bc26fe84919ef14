package cpumanager

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// Runtime is what Run needs of the container runtime.
type Runtime interface {
	ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error)
	UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest, ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error)
}

// Run sets the CPUs of running containers when exclusive CPUs are taken or freed, and
// each period, until ctx ends: a container that starts meanwhile has the old ones.
func (m *Manager) Run(ctx context.Context, r Runtime, period time.Duration) {
	applied := map[string]string{}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		next, err := m.reconcile(ctx, r, applied)
		if err != nil && ctx.Err() == nil {
			m.log.Warn("list containers failed", "error", err)
		}
		applied = next
		select {
		case <-m.waker:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// reconcile updates the containers that have other CPUs than they are to have. applied
// are the CPUs of containers by id, as far as they are known. It returns the CPUs that they have now.
func (m *Manager) reconcile(ctx context.Context, r Runtime, applied map[string]string) (map[string]string, error) {
	res, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return applied, err
	}
	next := map[string]string{}
	for _, c := range res.Containers {
		uid, name := types.UID(c.Labels[cri.LabelPodUID]), c.Labels[cri.LabelContainerName]
		if uid == "" || name == "" {
			continue // not the kubelet's
		}
		want := m.Of(uid, name).String()
		if applied[c.Id] != want {
			if err := update(ctx, r, c.Id, want); err != nil {
				if ctx.Err() == nil && !cri.NotFound(err) {
					m.log.Warn("set the container's CPUs failed", "uid", uid, "container", name, "cpus", want, "error", err)
				}
				continue // the next round tries again
			}
		}
		next[c.Id] = want
	}
	return next, nil
}

func update(ctx context.Context, r Runtime, id, cpus string) error {
	_, err := r.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: cpus},
	})
	if err != nil {
		return fmt.Errorf("update container resources: %w", err)
	}
	return nil
}
