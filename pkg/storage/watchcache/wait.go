package watchcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"podium/pkg/storage"
)

const (
	latestWithin  = 10 * time.Second      // timeout of a consistent read
	atLeastWithin = 3 * time.Second       // timeout of a read at a given revision
	markEvery     = 50 * time.Millisecond // interval of progress requests while a read waits
)

// waiter waits for a revision, or for the first list if rev is 0.
type waiter struct {
	rev  int64
	done chan struct{}
}

// waitLatest blocks until the caches include all writes acknowledged before the
// call.
func (f *Feed) waitLatest(ctx context.Context) error {
	// The store is queried after the call began, so its answer covers every write
	// acknowledged before. A client that has seen a revision must never get a lower
	// one.
	seen := f.revision.Load()
	rev, err := f.store.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read the store's revision: %w", err)
	}
	if rev < seen {
		f.rewind()
		return errRewound
	}
	if f.reached(rev) {
		return nil
	}
	within, cancel := context.WithTimeoutCause(ctx, latestWithin,
		fmt.Errorf("the watch cache does not reach the store's revision %d: %w", rev, context.DeadlineExceeded))
	defer cancel()
	return f.wait(within, rev)
}

// waitAtLeast blocks until the caches have reached rev; 0 accepts any revision. It
// returns storage.ErrFuture after 3 s, or the error of Ready if the first list is
// not complete.
func (f *Feed) waitAtLeast(ctx context.Context, rev int64) error {
	if f.reached(rev) {
		return nil
	}
	future := storage.ErrFuture
	within, cancel := context.WithTimeoutCause(ctx, atLeastWithin, future)
	defer cancel()
	err := f.wait(within, rev)
	if errors.Is(err, future) && !f.listed.Load() {
		return f.Ready()
	}
	return err
}

func (f *Feed) reached(rev int64) bool { return f.listed.Load() && f.revision.Load() >= rev }

// wait blocks until the caches have reached rev or ctx ends, and then returns the
// cause of ctx. Usually the event is on its way. If it does not arrive soon, the
// write was outside the prefix, and only a bookmark of the store reports its
// revision.
func (f *Feed) wait(ctx context.Context, rev int64) error {
	f.mu.Lock()
	if f.reached(rev) {
		f.mu.Unlock()
		return nil
	}
	w := waiter{rev, make(chan struct{})}
	f.waiters = append(f.waiters, w)
	f.mu.Unlock()
	defer f.forget(w)

	timer := time.NewTimer(markEvery)
	defer timer.Stop()
	for {
		select {
		case <-w.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			f.requestProgress(ctx)
			timer.Reset(markEvery)
		}
	}
}

func (f *Feed) forget(w waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.waiters {
		if f.waiters[i].done == w.done {
			last := len(f.waiters) - 1
			f.waiters[i] = f.waiters[last]
			f.waiters[last] = waiter{}
			f.waiters = f.waiters[:last]
			return
		}
	}
}

// publish makes rev visible. Every cache must have applied it.
func (f *Feed) publish(rev int64) {
	f.revision.Store(rev)
	f.wakeAll()
}

// wakeAll releases the waiters whose revision is reached.
func (f *Feed) wakeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := f.waiters[:0]
	for _, w := range f.waiters {
		if f.reached(w.rev) {
			close(w.done)
		} else {
			keep = append(keep, w)
		}
	}
	clear(f.waiters[len(keep):])
	f.waiters = keep
}

// rewind ends the watch with errRewound.
func (f *Feed) rewind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rewound = true
	if f.watch != nil {
		f.watch.Stop()
	}
}

// setWatch sets the running watch, or nil. It returns errRewound if that was
// detected since the previous call.
func (f *Feed) setWatch(w storage.Watch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = w
	if f.rewound {
		f.rewound = false
		return errRewound
	}
	return nil
}

// requestProgress requests a bookmark from the running watch, unless another reader has
// just done so. It logs errors.
func (f *Feed) requestProgress(ctx context.Context) {
	f.mu.Lock()
	w, now := f.watch, time.Now()
	if w == nil || now.Sub(f.asked) < markEvery/2 {
		f.mu.Unlock()
		return
	}
	f.asked = now
	f.mu.Unlock()
	err := w.Mark(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		err = f.writeProgressKey(ctx)
	}
	if err != nil && ctx.Err() == nil {
		f.log.Debug("request watch progress failed", "err", err)
	}
}

// writeProgressKey writes a key under the prefix, for stores without bookmarks: the watch
// reports this write after all earlier ones.
func (f *Feed) writeProgressKey(ctx context.Context) error {
	key := f.prefix + "mark"
	kv, err := f.store.Get(ctx, key)
	var conflict *storage.ConflictError
	switch {
	case errors.Is(err, storage.ErrNotFound):
		if _, err = f.store.Create(ctx, key, []byte("watchcache")); errors.Is(err, storage.ErrExists) {
			return nil // another apiserver created it at the same time
		}
	case err == nil:
		if _, err = f.store.Update(ctx, key, kv.Value, kv.Revision); errors.As(err, &conflict) {
			return nil
		}
	}
	return err
}
