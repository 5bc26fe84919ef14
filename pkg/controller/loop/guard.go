package loop

import (
	"maps"
	"strconv"
	"sync"
	"time"
)

// View is the cache that a controller reads from: an informer.
type View interface {
	Revision() string // the last resourceVersion seen
}

// sweepFrom is the number of keys with writes from which the guard looks for those that the
// views show by now.
const sweepFrom = 64

// guard records, per key, the writes that the views do not show yet. It forgets them when the
// key is reconciled again. Nothing may wake the key of an object that is gone, so it also
// looks at all keys when their number has doubled.
type guard struct {
	mu      sync.Mutex
	pending map[Key]*writes
	sweepAt int
}

type writes struct {
	reach map[View]uint64 // revisions that the views must reach
	seen  []func() bool   // conditions, oldest first
	since time.Time
	polls int
}

func newGuard() *guard { return &guard{pending: map[Key]*writes{}, sweepAt: sweepFrom} }

func (g *guard) of(key Key) *writes {
	w := g.pending[key]
	if w == nil {
		if len(g.pending) >= g.sweepAt {
			maps.DeleteFunc(g.pending, func(_ Key, w *writes) bool { return w.shown() })
			g.sweepAt = max(sweepFrom, 2*len(g.pending))
		}
		w = &writes{reach: map[View]uint64{}}
		g.pending[key] = w
	}
	w.since, w.polls = time.Now(), 0
	return w
}

func (g *guard) wrote(key Key, view View, resourceVersion string) {
	rev, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return // the revision cannot be compared: do not wait
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.of(key)
	w.reach[view] = max(w.reach[view], rev)
}

func (g *guard) wait(key Key, seen func() bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.of(key)
	w.seen = append(w.seen, seen)
}

// stale reports whether a view lacks a write of key, and when to check again if no change
// enqueues the key before. After limit it stops waiting and sets gaveUp.
func (g *guard) stale(key Key, limit time.Duration) (again time.Duration, stale, gaveUp bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.pending[key]
	if w == nil {
		return 0, false, false
	}
	if w.shown() {
		delete(g.pending, key)
		return 0, false, false
	}
	if time.Since(w.since) >= limit {
		delete(g.pending, key)
		return 0, false, true
	}
	again = min(time.Millisecond<<min(w.polls, 10), time.Second)
	w.polls++
	return again, true, false
}

func (w *writes) shown() bool {
	for view, rev := range w.reach {
		at, err := strconv.ParseUint(view.Revision(), 10, 64)
		if err != nil || at < rev {
			return false
		}
		delete(w.reach, view)
	}
	for len(w.seen) > 0 {
		if !w.seen[0]() {
			return false
		}
		w.seen[0] = nil
		w.seen = w.seen[1:]
	}
	return true
}
