package watchcache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// Config describes one resource to cache.
type Config struct {
	Kind    *scheme.Kind
	Prefix  string                                    // "/registry/pods/"
	Decode  func(storage.KV) (scheme.Object, error)   // sets resourceVersion
	Revive  func(proto []byte) (scheme.Object, error) // from what Proto of an entry gave; nil: decoded objects are kept for ever
	Fields  func(scheme.Object) fields.Set            // nil: only name and namespace
	Indexed []string                                  // field names watchers and ByField are indexed by, besides namespace and name: "spec.nodeName"
	History int                                       // changes kept for watches that begin in the past; default 10,000 (more while there is much churn)
	Follow  Follower                                  // optional
}

// Follower keeps an index of its own over a resource. It is told of every
// change in order and before that change is published or sent to a watcher:
// who has seen a revision finds the follower at least as far. It must not block
// and must not modify the objects.
type Follower interface {
	Replace(all []scheme.Object) // the whole resource is this now
	Put(obj scheme.Object)
	Remove(namespace, name string)
}

// Cache is one resource. All methods may be called concurrently; those that
// read wait until the feed has made its first list.
type Cache struct {
	cfg  Config
	feed *Feed
	age  atomic.Uint32 // counted in sweeps
	hot  hot

	// frozen is a clone of live, nil when live has changed since.
	frozen atomic.Pointer[state]

	mu       sync.Mutex
	live     *contents
	revision int64 // of the last change here
	history  history
	watchers watchers
	kept     kept
	received int64 // changes
}

// state is the contents as the changes up to revision left them.
type state struct {
	*contents
	revision int64
}

func newCache(feed *Feed, cfg Config) *Cache {
	if cfg.History <= 0 {
		cfg.History = 10_000
	}
	return &Cache{cfg: cfg, feed: feed, live: newContents(cfg.Indexed), watchers: newWatchers(cfg.Indexed)}
}

// Latest is the present: it waits until the cache is as fresh as the store was
// when Latest was called (a consistent read).
func (c *Cache) Latest(ctx context.Context) (*Snapshot, error) {
	if err := c.feed.waitLatest(ctx); err != nil {
		return nil, err
	}
	return c.now(), nil
}

// AtLeast waits until the cache has reached rev (0: whatever there is). It is
// storage.ErrFuture when rev is not reached in 3 s.
func (c *Cache) AtLeast(ctx context.Context, rev int64) (*Snapshot, error) {
	if err := c.feed.waitAtLeast(ctx, rev); err != nil {
		return nil, err
	}
	return c.now(), nil
}

// now is the cache as it stands.
func (c *Cache) now() *Snapshot {
	// The feed applies a revision to its caches before it publishes it: what is
	// loaded second is never older than what is loaded first.
	published := c.feed.revision.Load()
	s := c.frozen.Load()
	if s == nil {
		c.mu.Lock()
		s = c.freezeLocked()
		c.mu.Unlock()
	}
	return &Snapshot{Revision: max(published, s.revision), contents: s.contents}
}

func (c *Cache) freezeLocked() *state {
	s := c.frozen.Load()
	if s == nil {
		s = &state{c.live.clone(), c.revision}
		c.frozen.Store(s)
	}
	return s
}

// apply takes over changes of this resource, in order. Only the feed calls it.
func (c *Cache) apply(events []storage.Event) {
	now := time.Now()
	changes := make([]*change, len(events)) // decoded before the lock is taken
	for i := range events {
		changes[i] = c.newChange(&events[i], now)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	for i, ch := range changes {
		if ch == nil || !c.applyLocked(events[i].Key, ch) {
			continue
		}
		c.frozen.Store(nil)
		c.tellFollower(ch)
		c.history.add(ch)
		c.watchers.dispatch(ch)
	}
	c.history.trim(c.cfg.History, now)
}

// newChange is nil if the new state cannot be decoded. The last good state then
// stays visible: showing a deletion would be a lie with consequences.
func (c *Cache) newChange(ev *storage.Event, now time.Time) *change {
	ch := &change{revision: ev.Revision, at: now.UnixNano()}
	if ev.Deleted() {
		return ch
	}
	entry, err := c.newEntry(ev.KV)
	if err != nil {
		c.feed.log.Error("stored object cannot be decoded; its last good state stays visible",
			"key", ev.Key, "revision", ev.Revision, "err", err)
		return nil
	}
	ch.entry = entry
	return ch
}

// applyLocked changes the contents and notes what was before. It is false if
// there is nothing to tell because the change is known already.
func (c *Cache) applyLocked(key string, ch *change) bool {
	old := c.live.Get(key)
	switch {
	case old == nil && ch.entry == nil, old != nil && old.Revision >= ch.revision:
		return false
	case ch.entry == nil:
		c.live.remove(key)
	default:
		c.live.put(ch.entry)
	}
	if ch.prev = old; old != nil {
		old.drop() // few ask for the past
	}
	c.revision = ch.revision
	c.received++
	return true
}

func (c *Cache) tellFollower(ch *change) {
	switch {
	case c.cfg.Follow == nil:
	case ch.entry != nil:
		c.cfg.Follow.Put(ch.entry.Object())
	default:
		c.cfg.Follow.Remove(ch.prev.Fields["metadata.namespace"], ch.prev.Fields["metadata.name"])
	}
}

// replace makes a whole list the present state, as of rev. Watchers are cut:
// what happened between the last change and rev is not known in order.
func (c *Cache) replace(entries []*Entry, rev int64) {
	fresh := newContents(c.cfg.Indexed)
	for _, e := range entries {
		fresh.put(e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Follow != nil {
		all := make([]scheme.Object, len(entries))
		for i, e := range entries {
			all[i] = e.Object()
		}
		c.cfg.Follow.Replace(all)
	}
	c.live = fresh
	c.revision = rev
	c.frozen.Store(nil)
	c.history.reset(rev)
	c.kept.clear()
	c.watchers.cutAll(storage.ErrCompacted)
}

// known is the entry of a key if the cache holds it at just this revision: a
// list need not decode it again. Only the feed calls it.
func (c *Cache) known(key string, rev int64) *Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.live.Get(key); e != nil && e.Revision == rev {
		return e
	}
	return nil
}

// sweep drops what is cold: encodings, old changes and their frames, kept
// snapshots, and cuts watchers whose reader has stopped.
func (c *Cache) sweep(now time.Time) {
	age := c.age.Add(1)
	c.now().Ascend("", "", func(e *Entry) bool {
		e.cool(age)
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.trim(c.cfg.History, now)
	old := now.Add(-sweepEvery).UnixNano()
	for _, ch := range c.history.changes {
		if ch.prev != nil {
			ch.prev.cool(age)
		}
		if ch.at < old && ch.frames.Load() != nil {
			ch.frames.Store(nil)
		}
	}
	c.kept.expire(now)
	c.watchers.cutStalled(now)
}
