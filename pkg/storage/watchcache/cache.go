package watchcache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/pieces"
)

// Config describes one resource to cache. Kind, Prefix and Decode are required. The
// functions must be safe for concurrent use.
type Config struct {
	Kind   *scheme.Kind
	Prefix string                                  // of the keys, such as "/registry/pods/"
	Decode func(storage.KV) (scheme.Object, error) // decodes a stored value and sets resourceVersion
	// Restore decodes the result of an entry's Proto, or of JSON if Text is set. If
	// it is nil, decoded objects are never dropped.
	Restore func([]byte) (scheme.Object, error)
	Text    bool                           // the kind has no protobuf encoding: entries are kept as JSON
	Fields  func(scheme.Object) fields.Set // fields for selectors; nil: only name and namespace

	// Indexed are the fields by which watchers and ByField are indexed, besides
	// namespace and name, such as "spec.nodeName".
	Indexed []string

	// History is the number of changes kept for watches that begin in the past;
	// default 10,000, and more under heavy churn.
	History int
	Follow  Follower // may be nil
}

// Follower maintains an index of its own over a resource. The cache calls it with
// every change, in order, and before it publishes the change or sends it to a
// watcher: a client that has seen a revision finds the follower at least at that
// revision. The calls are serialized. They must not block and must not modify the
// objects.
type Follower interface {
	Replace(all []scheme.Object) // the new contents of the whole resource
	Put(obj scheme.Object)
	Remove(namespace, name string)
}

// Cache holds one resource. All methods are safe for concurrent use; those that
// read block until the feed has completed its first list.
type Cache struct {
	cfg  Config
	feed *Feed
	age  atomic.Uint32 // number of sweeps
	hot  hot

	texts texts        // of labels and fields
	bases pieces.Bases // of encodings

	large atomic.Int64 // bytes of large encodings, since the last sweep without those of entries that are gone

	// frozen is a clone of live, or nil if live has changed since the last clone.
	frozen atomic.Pointer[state]

	mu       sync.Mutex
	live     *contents
	revision int64 // of the last change of this resource
	history  history
	watchers watchers
	kept     kept
	wanted   scans
	received int64 // number of changes

	filling bool            // the initial contents are being read from the store
	pending []storage.Event // changes that arrived while filling
	removed atomic.Bool
}

// ErrRemoved is the error of reads and watches of a cache that was removed with
// Feed.Remove.
var ErrRemoved = errors.New("the resource was removed")

// state is immutable contents after all changes up to revision.
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

// Latest returns the newest contents. It blocks until the cache is at least as
// fresh as the store was when Latest was called, which makes it a consistent read.
// It fails after 10 s.
func (c *Cache) Latest(ctx context.Context) (*Snapshot, error) {
	if err := c.feed.waitLatest(ctx); err != nil {
		return nil, err
	}
	return c.present()
}

// AtLeast blocks until the cache has reached rev; 0 accepts any revision. It
// returns storage.ErrFuture if the cache does not reach rev within 3 s.
func (c *Cache) AtLeast(ctx context.Context, rev int64) (*Snapshot, error) {
	if err := c.feed.waitAtLeast(ctx, rev); err != nil {
		return nil, err
	}
	return c.present()
}

// Len returns the number of objects.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live.Len()
}

// present returns the present contents, or ErrRemoved.
func (c *Cache) present() (*Snapshot, error) {
	s := c.now()
	if c.removed.Load() {
		return nil, ErrRemoved
	}
	return s, nil
}

// now returns the present contents without waiting.
func (c *Cache) now() *Snapshot {
	// The feed publishes a revision after all caches have applied it: contents that
	// are loaded after the published revision are never older.
	published := c.feed.revision.Load()
	s := c.frozen.Load()
	if s == nil {
		c.mu.Lock()
		s = c.freezeLocked()
		c.mu.Unlock()
	}
	return &Snapshot{Revision: max(published, s.revision), contents: s.contents}
}

// freezeLocked returns an immutable clone of the live contents, which readers share
// until the next change.
func (c *Cache) freezeLocked() *state {
	s := c.frozen.Load()
	if s == nil {
		s = &state{c.live.clone(), c.revision}
		c.frozen.Store(s)
	}
	return s
}

// apply applies changes of this resource, in order. Only the feed calls it.
func (c *Cache) apply(events []storage.Event) {
	now := time.Now()
	changes := make([]*change, len(events)) // decode before taking the lock
	for i := range events {
		changes[i] = c.newChange(&events[i], now)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filling {
		c.pending = append(c.pending, events...)
		return
	}
	c.applyAllLocked(events, changes, now)
}

// applyAllLocked applies changes and passes each new one to the follower, the
// history and the watchers, in this order. changes[i] belongs to events[i]; nil is
// skipped.
func (c *Cache) applyAllLocked(events []storage.Event, changes []*change, now time.Time) {
	for i, ch := range changes {
		if ch == nil || !c.applyLocked(events[i].Key, ch) {
			continue
		}
		c.frozen.Store(nil)
		c.notifyFollower(ch)
		c.history.add(ch)
		c.watchers.dispatch(ch)
	}
	c.history.trim(c.cfg.History, now)
}

// fill makes past the contents and applies the pending changes. It does nothing if
// the feed has replaced the contents since, or if the cache was removed.
func (c *Cache) fill(past *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.filling || c.removed.Load() {
		return
	}
	c.filling = false
	c.live, c.revision = past.contents, past.Revision
	c.frozen.Store(nil)
	c.history.reset(past.Revision)
	if c.cfg.Follow != nil {
		var all []scheme.Object
		past.Ascend("", "", func(e *Entry) bool { all = append(all, e.Object()); return true })
		c.cfg.Follow.Replace(all)
	}
	now := time.Now()
	changes := make([]*change, len(c.pending))
	for i := range c.pending {
		changes[i] = c.newChange(&c.pending[i], now)
	}
	c.applyAllLocked(c.pending, changes, now)
	c.pending = nil
}

// close ends all watches with ErrRemoved and releases the objects.
func (c *Cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed.Store(true)
	c.live, c.pending = newContents(c.cfg.Indexed), nil
	c.frozen.Store(nil)
	c.history.reset(c.revision)
	c.kept.clear()
	c.watchers.cutAll(ErrRemoved)
	c.hot.clear()
}

// newChange returns nil if the new state cannot be decoded. The last good state
// then stays visible: clients would act on a deletion that did not happen.
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

// applyLocked applies a change to the contents and records the previous state in
// ch. It returns false if the contents include the change already.
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
		old.drop() // few clients read past states
	}
	c.revision = ch.revision
	c.received++
	return true
}

func (c *Cache) notifyFollower(ch *change) {
	switch {
	case c.cfg.Follow == nil:
	case ch.entry != nil:
		c.cfg.Follow.Put(ch.entry.Object())
	default:
		c.cfg.Follow.Remove(ch.prev.Fields.Get("metadata.namespace"), ch.prev.Fields.Get("metadata.name"))
	}
}

// replace makes entries the contents as of rev. It ends all watches with
// storage.ErrCompacted, because the order of the changes between the previous
// revision and rev is unknown.
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
	c.filling, c.pending = false, nil
	c.live = fresh
	c.revision = rev
	c.frozen.Store(nil)
	c.history.reset(rev)
	c.kept.clear()
	c.watchers.cutAll(storage.ErrCompacted)
}

// known returns the entry of key if the cache holds it at exactly this revision, so
// that a list need not decode it again, else nil.
func (c *Cache) known(key string, rev int64) *Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.live.Get(key); e != nil && e.Revision == rev {
		return e
	}
	return nil
}

// entryAt returns the entry of a stored value. If the value cannot be decoded, it
// logs that and returns nil.
func (c *Cache) entryAt(kv storage.KV) *Entry {
	if e := c.known(kv.Key, kv.Revision); e != nil {
		return e
	}
	e, err := c.newEntry(kv)
	if err != nil {
		c.feed.log.Error("stored object cannot be decoded and stays invisible", "key", kv.Key, "revision", kv.Revision, "err", err)
		return nil
	}
	return e
}

// sweep drops unused encodings, old changes with their frames and expired
// snapshots, and ends watches whose reader has stalled.
func (c *Cache) sweep(now time.Time) {
	age := c.age.Add(1)
	large := int64(0)
	c.now().Ascend("", "", func(e *Entry) bool {
		e.cool(age)
		large += e.large()
		return true
	})
	c.large.Store(large)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coolLabelsLocked()
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
