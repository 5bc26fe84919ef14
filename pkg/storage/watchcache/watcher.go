package watchcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/storage"
)

// ErrSlow ends the watch of a reader that does not keep up; it may resume
// after the last revision it saw.
var ErrSlow = errors.New("the watcher is too slow")

// A watcher is too slow when so many changes wait for it, or when the first of
// them has waited so long.
const (
	maxWaiting  = 5000
	maxWaitTime = time.Minute
)

const (
	batchSize     = 100 // events a Next makes from a list or from history: kept while the reader stalls
	keepQueue     = 64  // room a watcher keeps for what comes next
	bookmarkEvery = time.Minute
	bookmarkLast  = 2 * time.Second // before the context's deadline
)

// WatchOptions says what a watcher sees: every change after a revision that
// matches. A change that makes an object stop matching is Deleted, one that
// makes it match is Added.
type WatchOptions struct {
	After     int64           // exclusive; -1 means now; storage.ErrCompacted when history no longer reaches so far
	Prefix    string          // of keys: a namespace ("…/ns/"), or a single object's whole key; "" is the whole resource
	Labels    labels.Selector // nil is everything
	Fields    fields.Selector // nil is everything
	Initial   bool            // first the present state as Added, then an InitialEnd bookmark
	Fresh     bool            // with Initial: the present state is that of Latest, else whatever there is, at least After
	Bookmarks bool            // about one a minute, and before the watch ends
}

// Watcher is one running watch. One goroutine at a time calls Next; Stop may be
// called from anywhere, and twice.
type Watcher struct {
	cache  *Cache
	opts   WatchOptions
	bucket bucket
	slot   int // in the bucket; the cache's lock guards it

	initial *initial  // what Next gives first,
	backlog []*change // then this, then the queue
	spare   []queued  // an empty queue to fill next

	mu      sync.Mutex
	queue   []queued
	waiting int64 // unix time in nanoseconds since when something waits
	err     error // why the watch has ended
	wake    chan struct{}

	told         int64 // the revision the reader knows of
	nextBookmark time.Time
	lastBookmark time.Time // before the deadline; zero when there is none, or it was sent
}

type initial struct {
	*Snapshot
	after string // the last key given
}

// queued is a change and how this watcher sees it.
type queued struct {
	kind   watch.EventType
	change *change
}

// Watch begins a watch; it waits for a state that fulfils the options.
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
	case opts.Initial:
		s := c.freezeLocked()
		w.initial = &initial{Snapshot: &Snapshot{Revision: max(published, s.revision), contents: s.contents}}
		w.told = w.initial.Revision
	case opts.After < 0:
		w.told = max(published, c.revision)
	default:
		changes, ok := c.history.after(opts.After)
		if !ok {
			return nil, fmt.Errorf("watch %s after %d: %w", opts.Prefix, opts.After, storage.ErrCompacted)
		}
		w.backlog, w.told = changes, opts.After
	}
	c.watchers.add(w)
	return w, nil
}

func (c *Cache) waitFor(ctx context.Context, opts WatchOptions) error {
	switch {
	case opts.Initial && opts.Fresh:
		return c.feed.waitLatest(ctx)
	case opts.Initial:
		return c.feed.waitAtLeast(ctx, max(opts.After, 0))
	}
	return c.feed.waitAtLeast(ctx, 0)
}

// Next blocks until there is something and returns all that is there. It ends
// with ErrSlow, storage.ErrCompacted, the context's error, or io.EOF after Stop.
func (w *Watcher) Next(ctx context.Context) ([]WatchEvent, error) {
	for {
		// A revision is published when its changes are in the queues: what is
		// loaded now is told in full once the queue has been found empty.
		published := w.cache.feed.revision.Load()
		if err := ctx.Err(); err != nil {
			return w.farewell(published, err)
		}
		if events, err := w.take(); len(events) > 0 || err != nil {
			return events, err
		}
		if w.bookmarkDue() {
			return w.bookmark(published), nil
		}
		w.sleep(ctx)
	}
}

// farewell is a bookmark if the watch ends with revisions untold, else err.
func (w *Watcher) farewell(published int64, err error) ([]WatchEvent, error) {
	w.mu.Lock()
	idle := len(w.queue) == 0 && w.err == nil
	w.mu.Unlock()
	if !w.opts.Bookmarks || !idle || w.initial != nil || w.backlog != nil || published <= w.told {
		return nil, err
	}
	return w.bookmark(published), nil
}

// take returns what is there: of the initial state, else of history, else of
// the queue.
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
	w.told = max(w.told, ch.revision)
	return WatchEvent{Type: kind, Entry: entry, Revision: ch.revision, change: ch}
}

// sees is how a change looks to this watcher, "" if it does not concern it.
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
	return (w.opts.Labels == nil || w.opts.Labels.Matches(e.Labels)) && (w.opts.Fields == nil || w.opts.Fields.Matches(e.Fields))
}

// offer queues a change if the watcher wants it. It is false when the watch is
// over and the watcher is to be taken out.
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

// stalled says that something waits for the reader for too long.
func (w *Watcher) stalled(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) > 0 && now.UnixNano()-w.waiting > int64(maxWaitTime)
}

// cut ends the watch with an error.
func (w *Watcher) cut(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.endLocked(err)
	}
}

func (w *Watcher) endLocked(err error) {
	w.err, w.queue = err, nil
	w.signal()
}

// Stop ends the watch; Next then returns io.EOF.
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

// signal wakes Next, now or when it next looks.
func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// sleep until something may have changed: a signal, a bookmark's time, the end.
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

// bookmarkDue is true regularly, and shortly before the deadline.
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

// bookmark tells that all up to a published revision has been seen.
func (w *Watcher) bookmark(published int64) []WatchEvent {
	w.nextBookmark = nextBookmark()
	w.told = max(w.told, published)
	return []WatchEvent{{Type: watch.Bookmark, Revision: w.told}}
}

// nextBookmark is spread out so that watchers begun together do not stay together.
func nextBookmark() time.Time {
	return time.Now().Add(bookmarkEvery - rand.N(bookmarkEvery/10))
}
