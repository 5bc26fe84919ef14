package flowcontrol

import (
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Writes limits the bytes that each user writes to the store, by a token bucket
// per user. A nil *Writes has no limit. It is safe for concurrent use.
type Writes struct {
	rate, burst float64 // bytes a second, bytes
	now         func() time.Time

	mu      sync.Mutex
	buckets map[string]bucket
}

// bucket holds the tokens left at a time; they are negative after a large
// write.
type bucket struct {
	left float64
	at   time.Time
}

// burstSeconds is the size of a full bucket, in seconds of the rate.
const burstSeconds = 16

// manyBuckets is the number of buckets from which full ones are dropped.
const manyBuckets = 1024

// NewWrites returns Writes that allow rate bytes per second, and bursts of
// sixteen times as many.
func NewWrites(rate int64, now func() time.Time) *Writes {
	return &Writes{rate: float64(rate), burst: burstSeconds * float64(rate), now: now, buckets: map[string]bucket{}}
}

// Spend takes n bytes from the user's bucket. If the bucket is empty it takes
// nothing and returns a 429 error with the seconds to wait.
func (w *Writes) Spend(user string, n int) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	left := w.left(user, now)
	if left <= 0 {
		wait := int(math.Ceil(-left/w.rate)) + 1
		return apierrors.NewTooManyRequests("Too many bytes written, please try again later.", wait)
	}
	if len(w.buckets) >= manyBuckets {
		w.dropFull(now)
	}
	w.buckets[user] = bucket{left - float64(n), now}
	return nil
}

// left returns the user's tokens at the time now. The caller holds w.mu.
func (w *Writes) left(user string, now time.Time) float64 {
	b, ok := w.buckets[user]
	if !ok {
		return w.burst
	}
	return min(w.burst, b.left+w.rate*now.Sub(b.at).Seconds())
}

// dropFull drops full buckets, which are equivalent to absent ones. The caller
// holds w.mu.
func (w *Writes) dropFull(now time.Time) {
	for user := range w.buckets {
		if w.left(user, now) >= w.burst {
			delete(w.buckets, user)
		}
	}
}
