package etcd

import (
	"context"
	"sync"
)

// question lets concurrent callers share one answer. A caller only gets an
// answer to a question that was asked after it came: those who come while one
// is under way share the next.
type question struct {
	mu      sync.Mutex
	running bool
	next    *answer // to be asked for; nil if nobody waits
}

type answer struct {
	done chan struct{}
	rev  int64
	err  error
}

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

// run asks as long as somebody waits.
func (q *question) run(ask func(context.Context) (int64, error)) {
	for {
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
