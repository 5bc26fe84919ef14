package crifake

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventStream is one subscription to events. It never blocks the runtime: unread
// events wait in an unbounded queue.
type eventStream struct {
	grpc.ClientStream // not called
	ctx               context.Context

	mu     sync.Mutex
	queue  []*runtimeapi.ContainerEventResponse
	err    error
	signal chan struct{} // holds one token if there is something to read
}

// GetContainerEvents implements the CRI call, which containerd 1.6 does not have.
func (r *Runtime) GetContainerEvents(ctx context.Context, _ *runtimeapi.GetEventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	if r.cfg.NoEvents {
		return nil, status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
	}
	if err := r.begin(ctx, "GetContainerEvents", ""); err != nil {
		return nil, err
	}
	s := &eventStream{ctx: ctx, signal: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	for old := range r.watchers {
		if old.ctx.Err() != nil {
			delete(r.watchers, old)
		}
	}
	r.watchers[s] = true
	return s, nil
}

func (r *Runtime) emitLocked(id string, t runtimeapi.ContainerEventType, s *sandbox) {
	for w := range r.watchers {
		w.add(&runtimeapi.ContainerEventResponse{
			ContainerId: id, ContainerEventType: t, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: s.status(),
		})
	}
}

func (s *eventStream) add(e *runtimeapi.ContainerEventResponse) {
	s.mu.Lock()
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	s.wake()
}

func (s *eventStream) end(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.wake()
}

func (s *eventStream) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Recv blocks until there is an event, the runtime goes down or the context ends.
func (s *eventStream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			e := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			return e, nil
		}
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-s.signal:
		case <-s.ctx.Done():
			return nil, status.FromContextError(s.ctx.Err()).Err()
		}
	}
}
