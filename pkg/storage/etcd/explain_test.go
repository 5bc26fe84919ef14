package etcd

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A request whose client has disconnected counts as canceled, whether etcd or the
// API server notices first. It is not logged as a failure.
func TestExplainCanceled(t *testing.T) {
	for name, err := range map[string]error{
		"client": status.Error(codes.Canceled, "context canceled"),
		"server": rpctypes.Error(rpctypes.ErrGRPCCanceled),
		"wire":   rpctypes.ErrGRPCCanceled,
	} {
		if got := explain("update", err); !errors.Is(got, context.Canceled) {
			t.Errorf("%s: %v (%T) is not context.Canceled", name, got, err)
		}
	}
}
