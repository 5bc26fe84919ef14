package etcd

import (
	"context"
	"runtime"
	"sync"
)

// question lets concurrent callers share one request. A caller gets only the answer
// to a request that started after its call: callers that arrive while a request is
// running share the next one.
type question struct {
	mu      sync.Mutex
	running bool
	next    *answer // of the next request; nil if no caller waits for it
}

type answer struct {
	done chan struct{}
	rev  int64
	err  error
}

// answer returns the result of a call of ask that starts after answer was called.
// It blocks until then or until ctx ends, which does not cancel ask.
func (q *question) answer(ctx context.Context, ask func(context.Context) (int64, error)) (int64, error) {
	q.mu.Lock()
	if q.next == nil {
		q.next = &answer{done: make(chan struct{})}
	}
	a := q.next
	if !q.running {
		q.running = true
		go q.run(ask)
	}
	q.mu.Unlock()
	select {
	case <-a.done:
		return a.rev, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// run calls ask as long as callers wait.
func (q *question) run(ask func(context.Context) (int64, error)) {
	for {
		runtime.Gosched() // to callers that are about to ask: they share the request
		q.mu.Lock()
		a := q.next
		q.next = nil
		if a == nil {
			q.running = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		a.rev, a.err = ask(ctx)
		cancel()
		close(a.done)
	}
}
