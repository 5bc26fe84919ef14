package flowcontrol

import (
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Writes bounds how many bytes a user writes to the store: a token bucket for
// each. A nil Writes has no bound. It is safe for concurrent use.
type Writes struct {
	rate, burst float64 // bytes a second, bytes
	now         func() time.Time

	mu      sync.Mutex
	buckets map[string]bucket
}

// bucket is what was left in it, below zero after a large write, and when.
type bucket struct {
	left float64
	at   time.Time
}

// burstSeconds is for how long a user may write that has been idle, and none of
// whose bytes count.
const burstSeconds = 16

// manyBuckets is how many are kept before full ones are dropped.
const manyBuckets = 1024

// NewWrites allows rate bytes a second, and sixteen times as many at once.
func NewWrites(rate int64, now func() time.Time) *Writes {
	return &Writes{rate: float64(rate), burst: burstSeconds * float64(rate), now: now, buckets: map[string]bucket{}}
}

// Spend counts a write of n bytes. The error is a 429 that says when to come
// again.
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

// left wants the lock held.
func (w *Writes) left(user string, now time.Time) float64 {
	b, ok := w.buckets[user]
	if !ok {
		return w.burst
	}
	return min(w.burst, b.left+w.rate*now.Sub(b.at).Seconds())
}

// dropFull forgets the users who have written nothing for long. It wants the
// lock held.
func (w *Writes) dropFull(now time.Time) {
	for user := range w.buckets {
		if w.left(user, now) >= w.burst {
			delete(w.buckets, user)
		}
	}
}
