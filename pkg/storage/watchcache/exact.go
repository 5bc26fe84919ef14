package watchcache

import (
	"context"
	"fmt"
	"time"

	"podium/pkg/storage"
)

// Limits of the snapshots kept for the next page of a list. They are few and
// short-lived, so that a continue token expires soon after the store has compacted
// its revision.
const (
	keptSnapshots = 8
	keptFor       = 75 * time.Second
	pageSize      = 1000 // objects per list request to the store
)

// kept holds the most recent exact snapshots, oldest first. The lock of the cache
// guards it.
type kept struct {
	snapshots []keptSnapshot
}

type keptSnapshot struct {
	*Snapshot
	until time.Time
}

func (k *kept) find(rev int64, now time.Time) *Snapshot {
	for _, s := range k.snapshots {
		if s.Revision == rev && now.Before(s.until) {
			return s.Snapshot
		}
	}
	return nil
}

func (k *kept) add(s *Snapshot, now time.Time) {
	k.expire(now)
	if len(k.snapshots) == keptSnapshots {
		k.snapshots = k.snapshots[1:]
	}
	k.snapshots = append(k.snapshots, keptSnapshot{s, now.Add(keptFor)})
}

func (k *kept) expire(now time.Time) {
	for len(k.snapshots) > 0 && !now.Before(k.snapshots[0].until) {
		k.snapshots = k.snapshots[1:]
	}
	if len(k.snapshots) == 0 {
		k.snapshots = nil
	}
}

func (k *kept) clear() { k.snapshots = nil }

// At returns the contents at exactly rev, for continue tokens and exact matches. It
// undoes later changes or, if the history does not reach back to rev, lists the
// store. It returns storage.ErrCompacted if the store has compacted the revision and it was
// not used lately, and storage.ErrFuture if the cache does not reach it within 3 s.
func (c *Cache) At(ctx context.Context, rev int64) (*Snapshot, error) {
	if err := c.feed.waitAtLeast(ctx, rev); err != nil {
		return nil, err
	}
	s, trusted := c.ready(rev)
	if trusted {
		return s, nil
	}
	if s == nil {
		s = c.rewind(rev)
	}
	var err error
	if s == nil {
		s, err = c.listAt(ctx, rev)
	} else {
		err = c.compacted(ctx, rev)
	}
	if err != nil {
		return nil, err
	}
	c.keep(s)
	return s, nil
}

// compacted returns storage.ErrCompacted if the store has compacted rev. The history of a
// resource that hardly changes reaches further back: without this, its continue tokens
// would never expire.
func (c *Cache) compacted(ctx context.Context, rev int64) error {
	_, err := c.feed.store.List(ctx, c.cfg.Prefix, storage.ListOptions{Revision: rev, Limit: 1})
	return err
}

// ready returns the contents at rev if they are a kept snapshot or the present ones, else
// nil. They are trusted if the store cannot have compacted rev, or knew it a moment ago.
func (c *Cache) ready(rev int64) (s *Snapshot, trusted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.kept.find(rev, time.Now()); s != nil {
		return s, true
	}
	if rev < c.revision {
		return nil, false
	}
	return &Snapshot{Revision: rev, contents: c.freezeLocked().contents}, rev >= c.feed.revision.Load()
}

// rewind undoes the changes after rev on a copy of the present contents. It returns
// nil if the history does not reach back to rev.
func (c *Cache) rewind(rev int64) *Snapshot {
	c.mu.Lock()
	changes, ok := c.history.after(rev)
	past := c.live.clone()
	c.mu.Unlock()
	if !ok {
		return nil
	}
	for i := len(changes) - 1; i >= 0; i-- {
		if ch := changes[i]; ch.prev != nil {
			past.put(ch.prev)
		} else {
			past.remove(ch.entry.Key)
		}
	}
	return &Snapshot{Revision: rev, contents: past}
}

func (c *Cache) keep(s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.add(s, time.Now())
}

// listAt lists the contents at rev from the store, page by page.
func (c *Cache) listAt(ctx context.Context, rev int64) (*Snapshot, error) {
	past := newContents(c.cfg.Indexed)
	opts := storage.ListOptions{Revision: rev, Limit: pageSize}
	for {
		page, err := c.feed.store.List(ctx, c.cfg.Prefix, opts)
		if err != nil {
			return nil, err
		}
		for _, kv := range page.KVs {
			e := c.known(kv.Key, kv.Revision)
			if e == nil {
				if e, err = c.newEntry(kv); err != nil {
					return nil, fmt.Errorf("decode %s at revision %d: %w", kv.Key, kv.Revision, err)
				}
			}
			past.put(e)
		}
		if !page.More || len(page.KVs) == 0 {
			return &Snapshot{Revision: rev, contents: past}, nil
		}
		opts.After = page.KVs[len(page.KVs)-1].Key
	}
}
