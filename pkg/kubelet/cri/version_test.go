package cri

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// waking fails a number of times before it answers.
type waking struct {
	Runtime
	refusals int
	refusal  error
}

func (w *waking) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	if w.refusals--; w.refusals >= 0 {
		return nil, w.refusal
	}
	return &runtimeapi.VersionResponse{RuntimeName: "containerd"}, nil
}

func TestVersionOfARuntimeThatJustStarted(t *testing.T) {
	starting := status.Error(codes.Unknown, "server is not initialized yet")
	for name, row := range map[string]struct {
		reason  string
		runtime waking
		want    error
	}{
		"Slow":  {"it listens before it is ready", waking{refusals: 20, refusal: starting}, nil},
		"Never": {"patience has an end", waking{refusals: 1000, refusal: starting}, starting},
		"Old":   {"what it does not know now it will not know later", waking{refusals: 1000, refusal: status.Error(codes.Unimplemented, "v1")}, status.Error(codes.Unimplemented, "v1")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := version(ctx, &row.runtime)
				if status.Convert(err).Message() != status.Convert(row.want).Message() {
					t.Errorf("%s: %v, want %v", row.reason, err, row.want)
				}
			})
		})
	}
}
