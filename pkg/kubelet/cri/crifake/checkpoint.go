package crifake

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointContainer implements the CRI call; Config.Checkpoint answers it. As containerd, it
// makes the file readable for its owner only.
func (r *Runtime) CheckpointContainer(ctx context.Context, in *runtimeapi.CheckpointContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error) {
	if r.cfg.Checkpoint == nil {
		return nil, status.Error(codes.Unimplemented, "unknown method CheckpointContainer for service runtime.v1.RuntimeService")
	}
	if err := r.begin(ctx, "CheckpointContainer", r.nameOf(in.ContainerId)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := r.containers[in.ContainerId]
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return nil, status.Errorf(codes.NotFound, "container %q is not running", in.ContainerId)
	}
	view := c.view()
	r.mu.Unlock()
	if in.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(in.Timeout)*time.Second)
		defer cancel()
	}
	data, err := r.cfg.Checkpoint(ctx, view)
	switch {
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &runtimeapi.CheckpointContainerResponse{}, os.WriteFile(in.Location, data, 0o600)
}
