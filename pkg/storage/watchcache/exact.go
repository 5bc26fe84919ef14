package watchcache

import (
	"context"
	"fmt"
	"time"

	"podium/pkg/storage"
)

// Exact snapshots kept for the next page of a list: few, and not for long, so
// that a continue token really expires when the store has forgotten its revision.
const (
	keptSnapshots = 8
	keptFor       = 75 * time.Second
	pageSize      = 1000 // of lists from the store
)

// kept is the exact snapshots made lately, oldest first.
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

// At is the exact revision rev, for continue tokens and exact matches: the
// present with the changes since undone, else a list from the store. It is
// storage.ErrCompacted when the revision is gone, and storage.ErrFuture when
// it is not reached in 3 s.
func (c *Cache) At(ctx context.Context, rev int64) (*Snapshot, error) {
	if err := c.feed.waitAtLeast(ctx, rev); err != nil {
		return nil, err
	}
	if s := c.rewind(rev); s != nil {
		return s, nil
	}
	s, err := c.listAt(ctx, rev)
	if err != nil {
		return nil, err
	}
	c.keep(s)
	return s, nil
}

// rewind undoes the changes after rev on a copy of the present, nil if they
// are no longer known.
func (c *Cache) rewind(rev int64) *Snapshot {
	c.mu.Lock()
	if rev >= c.revision {
		defer c.mu.Unlock()
		return &Snapshot{Revision: rev, contents: c.freezeLocked().contents}
	}
	if s := c.kept.find(rev, time.Now()); s != nil {
		c.mu.Unlock()
		return s
	}
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
	s := &Snapshot{Revision: rev, contents: past}
	c.keep(s)
	return s
}

func (c *Cache) keep(s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.add(s, time.Now())
}

// listAt reads a revision from the store.
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
