package memory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"podium/pkg/storage"
)

// errStopped is the error of Next after Stop.
var errStopped = errors.New("the watch was stopped")

// batch is the maximum number of writes that one Next returns.
const batch = 1000

// watch is a position in the log of the store.
type watch struct {
	store  *Store
	prefix string
	once   sync.Once
	done   chan struct{}

	// Guarded by the lock of the store.
	after  int64
	marked bool
}

// Watch reports the writes under a prefix after a revision. If after is below the
// compacted revision, it returns storage.ErrCompacted.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (storage.Watch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if after < s.compacted {
		return nil, fmt.Errorf("watch %s after revision %d: %w", prefix, after, storage.ErrCompacted)
	}
	return &watch{store: s, prefix: prefix, after: after, done: make(chan struct{})}, nil
}

// Next blocks until there are events, the watch is stopped, or ctx ends.
func (w *watch) Next(ctx context.Context) ([]storage.Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		select {
		case <-w.done:
			return nil, errStopped
		default:
		}
		events, changed, err := w.read()
		if len(events) > 0 || err != nil {
			return events, err
		}
		select {
		case <-changed:
		case <-w.done:
		case <-ctx.Done():
		}
	}
}

// read returns the events that are ready, and a channel that is closed when there
// may be more.
func (w *watch) read() ([]storage.Event, <-chan struct{}, error) {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.after < s.compacted {
		return nil, nil, fmt.Errorf("watch %s after revision %d: %w", w.prefix, w.after, storage.ErrCompacted)
	}
	var events []storage.Event
	log := s.log[s.logIndex(w.after):] // one event per revision, so a batch cannot split a revision
	for _, ev := range log {
		if len(events) == batch {
			return events, s.changed, nil
		}
		w.after = ev.Revision
		if strings.HasPrefix(ev.Key, w.prefix) {
			events = append(events, ev)
		}
	}
	if w.marked {
		w.marked = false
		events = append(events, storage.Event{KV: storage.KV{Revision: max(s.revision, w.after)}})
	}
	return events, s.changed, nil
}

// Mark makes Next return a mark after the writes that are ready.
func (w *watch) Mark(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	w.marked = true
	s.wake()
	return nil
}

// Stop ends the watch. It may be called more than once.
func (w *watch) Stop() { w.once.Do(func() { close(w.done) }) }
