// Package backoff spaces the attempts of a retry loop, and waits until a time
// has passed or a context ends.
//
// It reads no clock but that of the time package, so loops that use it run in
// virtual time in a testing/synctest bubble.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff yields the delays of one retry loop: Initial after the first failure,
// then each time Factor times as long, up to Max. It is not safe for concurrent
// use. Copying it copies its progress.
type Backoff struct {
	Initial time.Duration // the delay after the first failure
	Max     time.Duration // the longest delay, before jitter; 0: no limit
	Factor  float64       // the growth from one delay to the next; 0: 2

	// Jitter lengthens each delay by a random part of itself, this much at
	// most (0.1: up to 10 %), so that clients that failed together do not
	// retry together.
	Jitter float64
	// Rand returns numbers in [0,1) for Jitter; nil: math/rand's.
	Rand func() float64

	delay time.Duration // the last delay without its jitter; 0: no failure since Reset
}

// Next counts a failure and returns the delay before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.delay = b.After(b.delay)
	return b.jittered(b.delay)
}

// Failing reports whether there was a failure since the last Reset.
func (b *Backoff) Failing() bool { return b.delay > 0 }

// AtMax reports whether the last delay was the longest one.
func (b *Backoff) AtMax() bool { return b.Max > 0 && b.delay >= b.Max }

// Reset forgets the failures: the next delay is Initial again.
func (b *Backoff) Reset() { b.delay = 0 }

// Wait counts a failure and blocks for the delay. It returns ctx's error if ctx
// ends first, else nil.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// After returns the delay, without jitter, that follows a delay of last; 0: none came
// before. It is for loops that keep their progress elsewhere, and counts no failure.
func (b *Backoff) After(last time.Duration) time.Duration {
	next := b.Initial
	if last > 0 {
		factor := b.Factor
		if factor == 0 {
			factor = 2
		}
		next = time.Duration(float64(last) * factor)
	}
	if b.Max > 0 {
		next = min(next, b.Max)
	}
	return next
}

func (b *Backoff) jittered(d time.Duration) time.Duration {
	if b.Jitter <= 0 {
		return d
	}
	random := b.Rand
	if random == nil {
		random = rand.Float64
	}
	return d + time.Duration(random()*b.Jitter*float64(d))
}

// Sleep blocks for d. It returns ctx's error if ctx ends first or has ended,
// else nil; with d of zero or less it returns at once.
func Sleep(ctx context.Context, d time.Duration) error { return SleepOrWake(ctx, d, nil) }

// SleepOrWake is Sleep that also returns nil as soon as it receives from wake;
// a nil wake never does.
func SleepOrWake(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
	case <-t.C:
	}
	return nil
}
