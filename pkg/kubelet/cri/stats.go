package cri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// statsAttempts is how often ListStats tries.
const statsAttempts = 5

// ListStats returns the statistics of the containers that the filter selects; nil: of all.
// containerd fails the whole call if one container ends during it, as on a busy node often
// happens. ListStats then tries again.
func ListStats(ctx context.Context, r Runtime, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	for attempt := 1; ; attempt++ {
		resp, err := r.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
		if err == nil || attempt == statsAttempts || ctx.Err() != nil || !containerEnded(err) {
			return resp.GetStats(), err
		}
	}
}

// containerEnded reports whether the reason of an error may be the end of a container.
// containerd has no code for it.
func containerEnded(err error) bool {
	switch status.Code(err) {
	case codes.Unknown, codes.NotFound, codes.Internal:
		return true
	}
	return false
}
