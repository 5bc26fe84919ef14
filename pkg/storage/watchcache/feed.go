package watchcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"podium/pkg/storage"
)

const (
	sweepEvery = 30 * time.Second
	retryFirst = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

// errRewound says that the store's revision is below one seen before: it was
// restored from a backup, and nothing the caches hold can be trusted.
var errRewound = errors.New("the store went back to an earlier revision")

// Feed is the single watch over the store that drives every cache. A revision
// is published when every cache shows it.
type Feed struct {
	store    storage.Store
	prefix   string
	log      *slog.Logger
	caches   []*Cache
	byFolder map[string]*Cache // by the prefix of their keys

	revision atomic.Int64 // published; 0 before the first list
	listed   atomic.Bool  // the caches have caught up for the first time
	lost     bool         // the past holds what cannot be read any more; only Run's goroutine asks

	mu      sync.Mutex
	waiters []waiter
	watch   storage.Watch // running now, else nil
	asked   time.Time     // when a mark was last asked for
	rewound bool          // someone noticed errRewound
}

// NewFeed makes a feed over all keys under prefix.
func NewFeed(store storage.Store, prefix string, log *slog.Logger) *Feed {
	return &Feed{store: store, prefix: prefix, log: log, byFolder: map[string]*Cache{}}
}

// Cache adds a resource; it must be called before Run. The resource's prefix is
// one folder below the feed's; all else is a mistake in the program.
func (f *Feed) Cache(cfg Config) *Cache {
	if f.folder(cfg.Prefix) != cfg.Prefix || f.byFolder[cfg.Prefix] != nil {
		panic(fmt.Sprintf("watchcache: %q is no folder of its own under %q", cfg.Prefix, f.prefix))
	}
	c := newCache(f, cfg)
	f.caches = append(f.caches, c)
	f.byFolder[cfg.Prefix] = c
	return c
}

// folder is the prefix and the next path element of a key.
func (f *Feed) folder(key string) string {
	if i := strings.IndexByte(key[min(len(f.prefix), len(key)):], '/'); i >= 0 {
		return key[:len(f.prefix)+i+1]
	}
	return ""
}

// Ready is nil once every cache has its first list.
func (f *Feed) Ready() error {
	if f.listed.Load() {
		return nil
	}
	return errors.New("the watch cache has not read the store yet")
}

// Run lists, then watches, until ctx ends; it lists again when the watch cannot
// go on where it broke.
func (f *Feed) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Go(func() { f.sweep(ctx) })
	helpers.Go(func() { f.wait(ctx, 0) }) // asks for marks: the last writes before the start may lie outside the prefix
	defer helpers.Wait()
	defer cancel()

	retry := backoff{}
	for ctx.Err() == nil {
		target, err := f.list(ctx)
		if err != nil {
			if ctx.Err() == nil {
				f.log.Warn("list the store for the watch cache", "err", err)
			}
			retry.wait(ctx)
			continue
		}
		retry = backoff{}
		if err := f.follow(ctx, target); ctx.Err() == nil {
			f.log.Warn("the watch cache starts anew", "revision", f.revision.Load(), "err", err)
		}
	}
	return ctx.Err()
}

// sweep drops what is cold, now and then.
func (f *Feed) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, c := range f.caches {
				c.sweep(now)
			}
		}
	}
}

// list fills the caches. The first time it begins a little in the past, so that
// watchers from before a restart find the changes they missed, unless there are
// values of that time whose key is gone; target is the revision from which on
// the caches show the present.
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

// listAt makes a revision of the store the contents of all caches.
func (f *Feed) listAt(ctx context.Context, rev int64) error {
	entries := map[*Cache][]*Entry{}
	opts := storage.ListOptions{Revision: rev, Limit: pageSize}
	for {
		page, err := f.store.List(ctx, f.prefix, opts)
		if err != nil {
			return err
		}
		for _, kv := range page.KVs {
			c := f.byFolder[f.folder(kv.Key)]
			if c == nil {
				continue
			}
			e := c.known(kv.Key, kv.Revision)
			if e == nil {
				if e, err = c.newEntry(kv); err != nil {
					f.log.Error("stored object cannot be decoded and stays invisible", "key", kv.Key, "revision", kv.Revision, "err", err)
					continue
				}
			}
			entries[c] = append(entries[c], e)
		}
		if !page.More || len(page.KVs) == 0 {
			break
		}
		opts.After = page.KVs[len(page.KVs)-1].Key
	}
	for _, c := range f.caches {
		c.replace(entries[c], rev)
	}
	f.publish(rev)
	return nil
}

// follow watches from the published revision on, and again from there when the
// watch breaks, until it must list anew.
func (f *Feed) follow(ctx context.Context, target int64) error {
	retry := backoff{}
	for {
		f.caughtUp(target)
		before := f.revision.Load()
		err := f.watchOnce(ctx, target)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrUnreadable):
			f.lost = true // what has replaced the value since may be read
			return err
		case errors.Is(err, storage.ErrCompacted), errors.Is(err, errRewound):
			return err
		}
		f.log.Warn("the watch over the store broke and is resumed", "revision", f.revision.Load(), "err", err)
		if f.revision.Load() > before {
			retry = backoff{}
		}
		retry.wait(ctx)
	}
}

// watchOnce applies what one watch reports until it ends.
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

// caughtUp notes when the caches show the present for the first time.
func (f *Feed) caughtUp(target int64) {
	if !f.listed.Load() && f.revision.Load() >= target {
		f.listed.Store(true)
		f.wakeAll()
	}
}

// apply hands runs of events of the same resource to its cache, then publishes.
func (f *Feed) apply(events []storage.Event) {
	for i := 0; i < len(events); {
		folder := f.folder(events[i].Key)
		j := i + 1
		for j < len(events) && f.folder(events[j].Key) == folder {
			j++
		}
		if c := f.byFolder[folder]; c != nil {
			c.apply(events[i:j])
		}
		i = j
	}
	if len(events) > 0 {
		f.publish(events[len(events)-1].Revision)
	}
}

// backoff waits longer each time, with jitter.
type backoff struct{ next time.Duration }

func (b *backoff) wait(ctx context.Context) {
	b.next = min(max(2*b.next, retryFirst), retryMost)
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
