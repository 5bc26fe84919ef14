package watchcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/storage"
)

// ErrSlow is the error of a watch whose reader does not keep up. The reader may
// resume after the last revision it received.
var ErrSlow = errors.New("the watcher is too slow")

// A watcher is too slow if this many changes are queued, or if the first of them
// has been queued for this long.
const (
	maxWaiting  = 5000
	maxWaitTime = time.Minute
)

const (
	batchSize     = 100 // maximum number of events per Next from a list or from the history
	keepQueue     = 64  // maximum capacity of an empty queue kept for reuse
	bookmarkEvery = time.Minute
	bookmarkLast  = 2 * time.Second // before the context's deadline
)

// WatchOptions selects the changes that a watcher receives: every matching change
// after a revision. If a change makes an object stop matching, the event is
// Deleted; if it makes the object match, Added.
type WatchOptions struct {
	// After is exclusive; -1 is the present. If the history does not reach back to
	// it, Watch returns storage.ErrCompacted.
	After int64

	// Prefix of the keys: a namespace ("…/ns/"), or the whole key of an object; ""
	// is the whole resource.
	Prefix  string
	Labels  labels.Selector // nil: everything
	Fields  fields.Selector // nil: everything
	Initial bool            // send the present state as Added events first, then an InitialEnd bookmark

	// Fresh makes the initial state that of Latest; otherwise it is any state at or
	// after After.
	Fresh bool
	// Bookmarks requests a bookmark about once a minute, and one before the
	// deadline of the context.
	Bookmarks bool
}

// Watcher is one running watch. Only one goroutine at a time may call Next. Stop
// may be called from any goroutine, and more than once.
type Watcher struct {
	cache  *Cache
	opts   WatchOptions
	bucket bucket
	slot   int // index in the bucket; guarded by the lock of the cache

	initial *initial  // Next returns the initial state first,
	backlog []*change // then the backlog, then the queue
	spare   []queued  // an empty queue for reuse

	mu      sync.Mutex
	queue   []queued
	waiting int64 // unix time in nanoseconds of the first queued change
	err     error // why the watch has ended
	wake    chan struct{}

	delivered    int64 // the newest revision returned by Next
	nextBookmark time.Time
	lastBookmark time.Time // before the deadline; zero: no deadline, or already sent
}

type initial struct {
	*Snapshot
	after string // the last key returned
}

// queued is a change and its event type for this watcher.
type queued struct {
	kind   watch.EventType
	change *change
}

// Watch begins a watch. It blocks until the cache has the state that the options
// require; ctx bounds this wait, and its deadline determines the last bookmark. The
// caller must call Stop.
func (c *Cache) Watch(ctx context.Context, opts WatchOptions) (*Watcher, error) {
	if opts.Prefix == "" {
		opts.Prefix = c.cfg.Prefix
	}
	if err := c.waitFor(ctx, opts); err != nil {
		return nil, err
	}
	w := &Watcher{cache: c, opts: opts, wake: make(chan struct{}, 1)}
	w.bucket = c.watchers.bucketOf(opts, c.cfg.Prefix)
	if opts.Bookmarks {
		w.nextBookmark = nextBookmark()
		if deadline, ok := ctx.Deadline(); ok {
			w.lastBookmark = deadline.Add(-bookmarkLast)
		}
	}

	published := c.feed.revision.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.removed.Load():
		return nil, ErrRemoved
	case opts.Initial:
		s := c.freezeLocked()
		w.initial = &initial{Snapshot: &Snapshot{Revision: max(published, s.revision), contents: s.contents}}
		w.delivered = w.initial.Revision
	case opts.After < 0:
		w.delivered = max(published, c.revision)
	default:
		changes, ok := c.history.after(opts.After)
		if !ok {
			return nil, fmt.Errorf("watch %s after %d: %w", opts.Prefix, opts.After, storage.ErrCompacted)
		}
		w.backlog, w.delivered = changes, opts.After
	}
	c.watchers.add(w)
	return w, nil
}

// waitFor blocks until the cache has the state with which a watch with these
// options begins.
func (c *Cache) waitFor(ctx context.Context, opts WatchOptions) error {
	switch {
	case opts.Initial && opts.Fresh:
		return c.feed.waitLatest(ctx)
	case opts.Initial:
		return c.feed.waitAtLeast(ctx, max(opts.After, 0))
	}
	return c.feed.waitAtLeast(ctx, 0)
}

// Next blocks until there are events and returns all that are ready, at most
// batchSize from a list or from the history. It returns an error when the watch has
// ended: ErrSlow, ErrRemoved, storage.ErrCompacted, the error of the context, or
// io.EOF after Stop.
func (w *Watcher) Next(ctx context.Context) ([]WatchEvent, error) {
	for {
		// The feed publishes a revision after its changes are in the queues: if the
		// queue is empty afterwards, the reader has received everything up to this
		// revision.
		published := w.cache.feed.revision.Load()
		if err := ctx.Err(); err != nil {
			return w.finalBookmark(published, err)
		}
		if events, err := w.take(); len(events) > 0 || err != nil {
			return events, err
		}
		if w.bookmarkDue() {
			return w.bookmark(published), nil
		}
		w.sleep(ctx)
		runtime.Gosched() // under load, more changes get ready meanwhile, and share a write
	}
}

// finalBookmark returns a final bookmark if the reader has received all events but not
// the newest revision, else err.
func (w *Watcher) finalBookmark(published int64, err error) ([]WatchEvent, error) {
	w.mu.Lock()
	idle := len(w.queue) == 0 && w.err == nil
	w.mu.Unlock()
	if !w.opts.Bookmarks || !idle || w.initial != nil || w.backlog != nil || published <= w.delivered {
		return nil, err
	}
	return w.bookmark(published), nil
}

// take returns what is ready: from the initial state, else from the history, else
// from the queue.
func (w *Watcher) take() ([]WatchEvent, error) {
	if w.initial != nil {
		if err := w.ended(); err != nil {
			return nil, err
		}
		return w.takeInitial(), nil
	}
	for len(w.backlog) > 0 {
		if err := w.ended(); err != nil {
			return nil, err
		}
		if events := w.takeBacklog(); len(events) > 0 {
			return events, nil
		}
	}
	w.mu.Lock()
	queue, err := w.queue, w.err
	w.queue, w.spare = w.spare, nil
	w.mu.Unlock()
	if len(queue) == 0 {
		w.spare = queue
		return nil, err
	}
	events := make([]WatchEvent, len(queue))
	for i, q := range queue {
		events[i] = w.event(q.kind, q.change)
	}
	if clear(queue); cap(queue) <= keepQueue {
		w.spare = queue[:0]
	}
	return events, nil
}

// takeInitial returns up to batchSize objects of the initial state, followed by the
// InitialEnd bookmark after the last one.
func (w *Watcher) takeInitial() []WatchEvent {
	var events []WatchEvent
	full := false
	w.initial.Ascend(w.opts.Prefix, w.initial.after, func(e *Entry) bool {
		if full = len(events) == batchSize; full {
			return false
		}
		if w.inPrefix(e.Key) && w.selects(e) {
			events = append(events, WatchEvent{Type: watch.Added, Entry: e, Revision: e.Revision})
		}
		w.initial.after = e.Key
		return true
	})
	if !full {
		events = append(events, WatchEvent{Type: watch.Bookmark, Revision: w.initial.Revision, InitialEnd: true})
		w.initial = nil
	}
	return events
}

// takeBacklog returns up to batchSize matching events of the history, or none if
// the rest does not match.
func (w *Watcher) takeBacklog() []WatchEvent {
	var events []WatchEvent
	n := 0
	for _, ch := range w.backlog {
		n++
		if kind := w.sees(ch); kind != "" {
			events = append(events, w.event(kind, ch))
		}
		if len(events) == batchSize {
			break
		}
	}
	if w.backlog = w.backlog[n:]; len(w.backlog) == 0 {
		w.backlog = nil
	}
	return events
}

func (w *Watcher) event(kind watch.EventType, ch *change) WatchEvent {
	entry := ch.entry
	if kind == watch.Deleted {
		entry = ch.deleted()
	}
	w.delivered = max(w.delivered, ch.revision)
	return WatchEvent{Type: kind, Entry: entry, Revision: ch.revision, change: ch}
}

// sees returns the event type of a change for this watcher, or "" if the change
// does not concern it.
func (w *Watcher) sees(ch *change) watch.EventType {
	now := ch.entry != nil && w.inPrefix(ch.entry.Key) && w.selects(ch.entry)
	before := ch.prev != nil && w.inPrefix(ch.prev.Key) && w.selects(ch.prev)
	switch {
	case now && before:
		return watch.Modified
	case now:
		return watch.Added
	case before:
		return watch.Deleted
	}
	return ""
}

func (w *Watcher) inPrefix(key string) bool {
	return strings.HasPrefix(key, w.opts.Prefix) && (len(key) == len(w.opts.Prefix) || strings.HasSuffix(w.opts.Prefix, "/"))
}

func (w *Watcher) selects(e *Entry) bool {
	return (w.opts.Labels == nil || w.opts.Labels.Matches(&e.Labels)) && (w.opts.Fields == nil || w.opts.Fields.Matches(&e.Fields))
}

// offer queues a change if it matches the options. It returns false if the watch
// has ended and the watcher must be removed. It never blocks on the reader. The
// caller holds the lock of the cache.
func (w *Watcher) offer(ch *change) bool {
	if ch.revision <= w.opts.After {
		return true
	}
	kind := w.sees(ch)
	if kind == "" {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return false
	}
	if len(w.queue) >= maxWaiting {
		w.endLocked(ErrSlow)
		return false
	}
	if len(w.queue) == 0 {
		w.waiting = ch.at
	}
	w.queue = append(w.queue, queued{kind, ch})
	w.signal()
	return true
}

// stalled reports whether a change has been queued for too long.
func (w *Watcher) stalled(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) > 0 && now.UnixNano()-w.waiting > int64(maxWaitTime)
}

// cut ends the watch with an error, unless it has ended already.
func (w *Watcher) cut(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.endLocked(err)
	}
}

// endLocked ends the watch with err and discards queued events. The caller holds
// w.mu.
func (w *Watcher) endLocked(err error) {
	w.err, w.queue = err, nil
	w.signal()
}

// Stop ends the watch and discards queued events; Next then returns io.EOF.
func (w *Watcher) Stop() {
	w.cache.mu.Lock()
	w.cache.watchers.remove(w)
	w.cache.mu.Unlock()
	w.cut(io.EOF)
}

func (w *Watcher) ended() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// signal wakes a blocked Next, or makes the next sleep return at once.
func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// sleep blocks until something may have changed: a signal, the time of a bookmark,
// or the end of ctx.
func (w *Watcher) sleep(ctx context.Context) {
	if !w.opts.Bookmarks {
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
		return
	}
	due := w.nextBookmark
	if !w.lastBookmark.IsZero() && w.lastBookmark.Before(due) {
		due = w.lastBookmark
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// bookmarkDue reports whether to send a bookmark: about once a minute, and shortly
// before the deadline.
func (w *Watcher) bookmarkDue() bool {
	if !w.opts.Bookmarks {
		return false
	}
	now := time.Now()
	if !w.lastBookmark.IsZero() && !now.Before(w.lastBookmark) {
		w.lastBookmark = time.Time{}
		return true
	}
	return !now.Before(w.nextBookmark)
}

// bookmark returns the bookmark event for a published revision.
func (w *Watcher) bookmark(published int64) []WatchEvent {
	w.nextBookmark = nextBookmark()
	w.delivered = max(w.delivered, published)
	return []WatchEvent{{Type: watch.Bookmark, Revision: w.delivered}}
}

// nextBookmark returns a jittered time, so that watchers started together do not
// stay in step.
func nextBookmark() time.Time {
	return time.Now().Add(bookmarkEvery - rand.N(bookmarkEvery/10))
}
