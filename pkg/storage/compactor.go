package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// Compactor compacts a store periodically: every Interval, it discards the history
// older than one Interval, so that the store keeps the history of one to two
// intervals. Several processes may run a Compactor with the same Key on the same
// store: the process that updates the record first does the round.
//
// The value of the record is the revision of the store at the time of its last
// update. A process that finds the record unchanged after a whole interval replaces
// it by the present revision and, unless that was a conflict, compacts to the
// revision in the old record.
type Compactor struct {
	Store    Store
	Key      string        // of the record; under the watched prefix, so that the watch advances with it
	Interval time.Duration // default 5 minutes
	Log      *slog.Logger
}

// Run compacts until ctx ends and returns the error of ctx. It logs other errors
// and tries again after the next interval.
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

// round does one round. last is the revision of the record in the previous round
// (0: none); the result is its present revision.
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
		return record.Revision, nil // another process did this round, or it is the first one here
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
