// Package poll waits for conditions that cannot be watched.
package poll

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Until calls check, at once and then in intervals of every, until it returns
// nil or ctx ends. In the latter case it returns check's last error from before
// ctx ended.
func Until(ctx context.Context, every time.Duration, check func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // an error due to the end of ctx hides the real one
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up: %w", last)
		case <-tick.C:
		}
	}
}

// Wait is the wait of one step of a command.
type Wait struct {
	For    time.Duration // the timeout
	Every  time.Duration // the interval of the checks
	Report func(string)  // receives the errors of the checks
	// Failed returns an error if the checks can no longer succeed, which ends the
	// wait. nil: it ends with the timeout only.
	Failed func(context.Context) error
}

// Until calls check until it returns nil, the timeout is over, ctx ends, or Failed
// returns an error.
func (w Wait) Until(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.For)
	defer cancel()
	var failed error
	err := Until(ctx, w.Every, func(ctx context.Context) error {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			w.Report(err.Error())
		}
		if w.Failed != nil {
			if failed = w.Failed(ctx); failed != nil {
				return nil
			}
		}
		return err
	})
	if failed != nil {
		return failed
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("after %s (--wait): %w", w.For, err)
	}
	return err
}
