package loop

import (
	"context"
	"errors"
	"sync"
)

// inParallel limits the concurrent requests of one reconcile.
const inParallel = 16

// Parallel calls f for 0..n-1, some at a time, and returns all errors, each text once.
func Parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		seen = map[string]bool{}
		slot = make(chan struct{}, inParallel)
	)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			err := f(ctx, i)
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if !seen[err.Error()] {
				seen[err.Error()] = true
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// SlowStart calls f for 0..n-1: one, then two, then four at a time and so on. It stops
// after the first batch with an error.
func SlowStart(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	for first, batch := 0, 1; first < n; first, batch = first+batch, 2*batch {
		err := Parallel(ctx, min(batch, n-first), func(ctx context.Context, i int) error { return f(ctx, first+i) })
		if err != nil {
			return err
		}
	}
	return nil
}
