// Package keylock has locks by key.
package keylock

import (
	"context"
	"sync"
)

// Locks is a lock for each key. The zero value is ready.
type Locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*turn
}

type turn struct {
	ch    chan struct{} // semaphore of size 1
	users int
}

// Lock blocks until no other call has the key, or ctx ends.
func (k *Locks[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[K]*turn{}
	}
	t := k.held[key]
	if t == nil {
		t = &turn{ch: make(chan struct{}, 1)}
		k.held[key] = t
	}
	t.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(k.held, key)
		}
	}
	select {
	case t.ch <- struct{}{}:
		return func() { <-t.ch; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
