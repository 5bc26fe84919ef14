package simulation

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/storage"
)

var errDead = errors.New("the process is dead")

// storeGate is the store for one life of an API server: a killed server writes nothing more, and
// can be killed at any write. Watch events may be delayed, which makes the server's cache stale.
type storeGate struct {
	storage.Store
	w    *world
	life *life
}

func (g *storeGate) write(ctx context.Context, op string, do func() (int64, error)) (int64, error) {
	if g.life.dead() {
		return 0, errDead
	}
	switch g.w.plan.pick(g.life.who, op+" in the store", g.w.plan.rates.store) {
	case crashBefore:
		g.life.die()
		return 0, errDead
	case crashAfter:
		do()
		g.life.die()
		return 0, errDead
	}
	return do()
}

func (g *storeGate) Create(ctx context.Context, key string, value []byte) (int64, error) {
	return g.write(ctx, "create", func() (int64, error) { return g.Store.Create(ctx, key, value) })
}

func (g *storeGate) Update(ctx context.Context, key string, value []byte, expect int64) (int64, error) {
	return g.write(ctx, "update", func() (int64, error) { return g.Store.Update(ctx, key, value, expect) })
}

func (g *storeGate) Delete(ctx context.Context, key string, expect int64) (int64, error) {
	return g.write(ctx, "delete", func() (int64, error) { return g.Store.Delete(ctx, key, expect) })
}

func (g *storeGate) Watch(ctx context.Context, prefix string, after int64) (storage.Watch, error) {
	if g.life.dead() {
		return nil, errDead
	}
	watch, err := g.Store.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	return &lateWatch{watch, g}, nil
}

type lateWatch struct {
	storage.Watch
	g *storeGate
}

func (l *lateWatch) Next(ctx context.Context) ([]storage.Event, error) {
	events, err := l.Watch.Next(ctx)
	late, cut := l.g.w.plan.lag(l.g.life.who, "the store")
	pause(ctx, late)
	if cut && err == nil {
		return nil, errReset
	}
	return events, err
}

// runtimeGate is the container runtime for one life of a kubelet.
type runtimeGate struct {
	cri.Runtime
	w    *world
	life *life
}

func guarded[Q, A any](g *runtimeGate, op string, ctx context.Context, in Q, call func(context.Context, Q, ...grpc.CallOption) (A, error)) (A, error) {
	var nothing A
	if g.life.dead() {
		return nothing, errDead
	}
	switch g.w.plan.pick(g.life.who, op, g.w.plan.rates.runtime) {
	case lost:
		return nothing, status.Error(codes.Unavailable, "the simulation says so")
	case unheard:
		call(ctx, in)
		return nothing, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	case crashBefore:
		g.life.die()
		return nothing, errDead
	case crashAfter:
		call(ctx, in)
		g.life.die()
		return nothing, errDead
	}
	return call(ctx, in)
}

func (g *runtimeGate) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return guarded(g, "RunPodSandbox", ctx, in, g.Runtime.RunPodSandbox)
}

func (g *runtimeGate) StopPodSandbox(ctx context.Context, in *runtimeapi.StopPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	return guarded(g, "StopPodSandbox", ctx, in, g.Runtime.StopPodSandbox)
}

func (g *runtimeGate) RemovePodSandbox(ctx context.Context, in *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	return guarded(g, "RemovePodSandbox", ctx, in, g.Runtime.RemovePodSandbox)
}

func (g *runtimeGate) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	return guarded(g, "CreateContainer", ctx, in, g.Runtime.CreateContainer)
}

func (g *runtimeGate) StartContainer(ctx context.Context, in *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return guarded(g, "StartContainer", ctx, in, g.Runtime.StartContainer)
}

func (g *runtimeGate) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	return guarded(g, "StopContainer", ctx, in, g.Runtime.StopContainer)
}

func (g *runtimeGate) RemoveContainer(ctx context.Context, in *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return guarded(g, "RemoveContainer", ctx, in, g.Runtime.RemoveContainer)
}
