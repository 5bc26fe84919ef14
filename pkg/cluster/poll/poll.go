// Package poll waits for what tells nobody that it has come.
package poll

import (
	"context"
	"fmt"
	"time"
)

// Until calls check until it returns nil, or ctx ends: then it returns check's
// last complaint.
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
			last = err // what failed because time ran out says nothing new
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up: %w", last)
		case <-tick.C:
		}
	}
}
