package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// Compactor makes a store forget its past: every Interval, what is older than
// one Interval (and younger than two it keeps). Several processes may run one
// on the same Key of the same store: a round is done by whoever moves the
// record first.
//
// The record's value is the store's revision when it was written. Who finds the
// record as it was a whole interval ago replaces it by the present revision
// and, if that was not a conflict, compacts to the revision the old one named.
type Compactor struct {
	Store    Store
	Key      string        // of the record; under the prefix that is watched, so that the watch advances with it
	Interval time.Duration // 0: 5 minutes
	Log      *slog.Logger
}

// Run compacts until ctx ends.
func (c *Compactor) Run(ctx context.Context) error {
	interval := c.Interval
	if interval == 0 {
		interval = 5 * time.Minute
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last, err := c.round(ctx, 0)
	for {
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("compact the store", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			last, err = c.round(ctx, last)
		}
	}
}

// round looks at the record; last is the revision at which it stood a round
// ago, the answer that at which it stands now.
func (c *Compactor) round(ctx context.Context, last int64) (int64, error) {
	now, err := c.Store.Revision(ctx)
	if err != nil {
		return last, err
	}
	value := strconv.AppendInt(nil, now, 10)
	record, err := c.Store.Get(ctx, c.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		made, err := c.Store.Create(ctx, c.Key, value)
		if errors.Is(err, ErrExists) {
			return last, nil
		}
		return made, err
	case err != nil:
		return last, err
	case record.Revision != last:
		return record.Revision, nil // someone else's round, or our first
	}
	made, err := c.Store.Update(ctx, c.Key, value, record.Revision)
	if conflict := (*ConflictError)(nil); errors.As(err, &conflict) {
		if conflict.Current != nil {
			return conflict.Current.Revision, nil
		}
		return 0, nil
	}
	if err != nil {
		return last, err
	}
	old, err := strconv.ParseInt(string(record.Value), 10, 64)
	if err != nil {
		return made, fmt.Errorf("read %s: %w", c.Key, err)
	}
	if err := c.Store.Compact(ctx, old); err != nil && !errors.Is(err, ErrCompacted) {
		return made, err
	}
	c.Log.Debug("compacted the store", "revision", old)
	return made, nil
}
