package cri

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// failing fails the first calls.
type failing struct {
	Runtime
	errs  []error
	calls int
}

func (f *failing) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest, ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	f.calls++
	if f.calls <= len(f.errs) {
		return nil, f.errs[f.calls-1]
	}
	return &runtimeapi.ListContainerStatsResponse{Stats: []*runtimeapi.ContainerStats{{}}}, nil
}

func TestListStats(t *testing.T) {
	ended := status.Error(codes.Unknown, "failed to decode container metrics: failed to get usage nano cores: not found")
	down := status.Error(codes.Unavailable, "connection refused")
	for name, c := range map[string]struct {
		errs  []error
		calls int
		want  error
	}{
		"Works":           {nil, 1, nil},
		"ContainersEnd":   {[]error{ended, ended}, 3, nil},
		"AlwaysFails":     {[]error{ended, ended, ended, ended, ended, ended}, statsAttempts, ended},
		"NoRuntime":       {[]error{down, down}, 1, down},
		"RuntimeGoesAway": {[]error{ended, down}, 2, down},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failing{errs: c.errs}
			got, err := ListStats(t.Context(), f, nil)
			if err != c.want || f.calls != c.calls || (err == nil) != (len(got) == 1) {
				t.Errorf("%d statistics, %v after %d calls; want %v after %d", len(got), err, f.calls, c.want, c.calls)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &failing{errs: []error{ended, ended}}
	if _, err := ListStats(ctx, f, nil); err != ended || f.calls != 1 {
		t.Errorf("after the end of the context: %v, %d calls", err, f.calls)
	}
}
