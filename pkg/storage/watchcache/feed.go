package watchcache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"podium/pkg/backoff"
	"podium/pkg/storage"
)

const (
	sweepEvery = 30 * time.Second

	// Back-off of requests to the store; jitter at most doubles a delay.
	firstRetry = 25 * time.Millisecond
	lastRetry  = 2500 * time.Millisecond
)

func newRetry() backoff.Backoff {
	return backoff.Backoff{Initial: firstRetry, Max: lastRetry, Jitter: 1}
}

// errRewound is returned if the revision of the store is below one seen before: the
// store was restored from a backup, and the contents of the caches are invalid.
var errRewound = errors.New("the store went back to an earlier revision")

// Feed is the single watch over the store that drives every cache. It publishes a
// revision after every cache has applied it. Its methods are safe for concurrent
// use.
type Feed struct {
	store  storage.Store
	prefix string
	log    *slog.Logger

	// applying is held while the caches apply a change of the store, until its
	// revision is published, and while the set of caches changes.
	applying sync.Mutex
	caches   atomic.Pointer[map[string][]*Cache] // by key prefix; copied on write

	revision atomic.Int64 // published; 0 before the first list
	listed   atomic.Bool  // the caches have caught up for the first time
	lost     bool         // the recent past has values that can no longer be decrypted; only Run uses it

	mu      sync.Mutex
	waiters []waiter
	watch   storage.Watch // the running watch, or nil
	asked   time.Time     // when progress was last requested
	rewound bool          // errRewound was detected and not yet handled
}

// NewFeed creates a feed over all keys under prefix. It reads nothing before Run.
func NewFeed(store storage.Store, prefix string, log *slog.Logger) *Feed {
	f := &Feed{store: store, prefix: prefix, log: log}
	f.caches.Store(&map[string][]*Cache{})
	return f
}

// Add adds the cache of a resource. Before Run it returns at once, and Run fills
// the cache; later it blocks until the cache holds the stored objects. cfg.Prefix
// must be one path element below the prefix of the feed. Another cache may have it:
// both are kept up to date until one is removed.
func (f *Feed) Add(ctx context.Context, cfg Config) (*Cache, error) {
	if f.folder(cfg.Prefix) != cfg.Prefix {
		return nil, fmt.Errorf("watch cache: prefix %q is not one folder below %q", cfg.Prefix, f.prefix)
	}
	c := newCache(f, cfg)
	f.applying.Lock()
	caches := maps.Clone(*f.caches.Load())
	caches[cfg.Prefix] = append(slices.Clone(caches[cfg.Prefix]), c)
	rev := f.revision.Load()
	c.filling = rev > 0
	f.caches.Store(&caches)
	f.applying.Unlock()
	if rev == 0 {
		return c, nil
	}
	past, err := c.listAt(ctx, rev)
	if err != nil {
		f.Remove(c)
		return nil, fmt.Errorf("fill the watch cache of %s: %w", cfg.Prefix, err)
	}
	c.fill(past)
	return c, nil
}

// Remove removes a cache: its watches end with ErrRemoved and its objects are
// released. The store is not changed. A second call does nothing.
func (f *Feed) Remove(c *Cache) {
	f.applying.Lock()
	defer f.applying.Unlock()
	caches := maps.Clone(*f.caches.Load())
	left := slices.DeleteFunc(slices.Clone(caches[c.cfg.Prefix]), func(other *Cache) bool { return other == c })
	if caches[c.cfg.Prefix] = left; len(left) == 0 {
		delete(caches, c.cfg.Prefix)
	}
	f.caches.Store(&caches)
	c.close()
}

// folder returns the prefix of the feed with the next path element of key, or "".
func (f *Feed) folder(key string) string {
	if i := strings.IndexByte(key[min(len(f.prefix), len(key)):], '/'); i >= 0 {
		return key[:len(f.prefix)+i+1]
	}
	return ""
}

// Ready returns nil once all caches have caught up with the store for the first
// time.
func (f *Feed) Ready() error {
	if f.listed.Load() {
		return nil
	}
	return errors.New("the watch cache has not read the store yet")
}

// Run lists the store and watches it until ctx ends, and returns the error of ctx.
// It lists again if a broken watch cannot be resumed. It may be called once.
func (f *Feed) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Go(func() { f.sweep(ctx) })
	helpers.Go(func() { f.wait(ctx, 0) }) // requests bookmarks: the last writes before the start may be outside the prefix
	defer helpers.Wait()
	defer cancel()

	retry := newRetry()
	for ctx.Err() == nil {
		target, err := f.list(ctx)
		if err != nil {
			if ctx.Err() == nil {
				f.log.Warn("list the store for the watch cache", "err", err)
			}
			_ = retry.Wait(ctx) // the loop condition checks ctx
			continue
		}
		retry.Reset()
		if err := f.follow(ctx, target); ctx.Err() == nil {
			f.log.Warn("watch cache restarts with a new list", "revision", f.revision.Load(), "err", err)
		}
	}
	return ctx.Err()
}

// sweep drops unused data from all caches periodically until ctx ends.
func (f *Feed) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for c := range f.all() {
				c.sweep(now)
			}
		}
	}
}

// all returns the caches.
func (f *Feed) all() iter.Seq[*Cache] {
	return func(yield func(*Cache) bool) {
		for _, same := range *f.caches.Load() {
			for _, c := range same {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// list fills the caches and returns the revision from which on they show the
// present. The first list starts a little in the past, so that watchers from before
// a restart can resume, unless values of that time are encrypted with a key that no
// longer exists.
func (f *Feed) list(ctx context.Context) (target int64, err error) {
	target, err = f.store.Revision(ctx)
	if err != nil {
		return 0, err
	}
	for _, behind := range []int64{10_000, 1000, 100} {
		if f.listed.Load() || f.lost {
			break
		}
		err := f.listAt(ctx, max(target-behind, 1))
		if err == nil {
			return target, nil
		}
		f.lost = errors.Is(err, storage.ErrUnreadable)
		if !f.lost && !errors.Is(err, storage.ErrCompacted) {
			return 0, err
		}
	}
	return target, f.listAt(ctx, target)
}

// listAt fills all caches with the contents of the store at rev. It lists again if
// a cache was added or removed meanwhile.
func (f *Feed) listAt(ctx context.Context, rev int64) error {
	for {
		caches := f.caches.Load()
		entries, err := f.entriesAt(ctx, *caches, rev)
		if err != nil {
			return err
		}
		if f.replace(caches, entries, rev) {
			return nil
		}
	}
}

// replace sets the contents of all caches as of rev and publishes rev. It does
// nothing and returns false if the set of caches has changed.
func (f *Feed) replace(caches *map[string][]*Cache, entries map[*Cache][]*Entry, rev int64) bool {
	f.applying.Lock()
	defer f.applying.Unlock()
	if f.caches.Load() != caches {
		return false
	}
	for c := range f.all() {
		c.replace(entries[c], rev)
	}
	f.publish(rev)
	return true
}

// entriesAt reads the entries of the caches at a revision of the store. It skips
// values that cannot be decoded.
func (f *Feed) entriesAt(ctx context.Context, caches map[string][]*Cache, rev int64) (map[*Cache][]*Entry, error) {
	entries := map[*Cache][]*Entry{}
	opts := storage.ListOptions{Revision: rev, Limit: pageSize}
	for {
		page, err := f.store.List(ctx, f.prefix, opts)
		if err != nil {
			return nil, err
		}
		for _, kv := range page.KVs {
			for _, c := range caches[f.folder(kv.Key)] {
				if e := c.entryAt(kv); e != nil {
					entries[c] = append(entries[c], e)
				}
			}
		}
		if !page.More || len(page.KVs) == 0 {
			return entries, nil
		}
		opts.After = page.KVs[len(page.KVs)-1].Key
	}
}

// follow watches from the published revision on and resumes broken watches, until
// ctx ends or a new list is necessary.
func (f *Feed) follow(ctx context.Context, target int64) error {
	retry := newRetry()
	for {
		f.caughtUp(target)
		before := f.revision.Load()
		err := f.watchOnce(ctx, target)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrUnreadable):
			f.lost = true // the present value may be readable
			return err
		case errors.Is(err, storage.ErrCompacted), errors.Is(err, errRewound):
			return err
		}
		f.log.Warn("store watch failed, resuming", "revision", f.revision.Load(), "err", err)
		if f.revision.Load() > before {
			retry.Reset()
		}
		if err := retry.Wait(ctx); err != nil {
			return err
		}
	}
}

// watchOnce applies the events of one watch until it ends.
func (f *Feed) watchOnce(ctx context.Context, target int64) error {
	w, err := f.store.Watch(ctx, f.prefix, f.revision.Load())
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := f.setWatch(w); err != nil {
		return err
	}
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return errors.Join(f.setWatch(nil), err)
		}
		f.apply(events)
		f.caughtUp(target)
	}
}

// caughtUp marks the feed as ready when it reaches target for the first time.
func (f *Feed) caughtUp(target int64) {
	if !f.listed.Load() && f.revision.Load() >= target {
		f.listed.Store(true)
		f.wakeAll()
	}
}

// apply passes each run of events of one resource to its cache, then publishes the
// last revision.
func (f *Feed) apply(events []storage.Event) {
	f.applying.Lock()
	defer f.applying.Unlock()
	caches := *f.caches.Load()
	for i := 0; i < len(events); {
		folder := f.folder(events[i].Key)
		j := i + 1
		for j < len(events) && f.folder(events[j].Key) == folder {
			j++
		}
		for _, c := range caches[folder] {
			c.apply(events[i:j])
		}
		i = j
	}
	if len(events) > 0 {
		f.publish(events[len(events)-1].Revision)
	}
}
