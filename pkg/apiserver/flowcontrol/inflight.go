package flowcontrol

import (
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// Inflight counts requests under way, those that change something apart from
// those that only read. Requests that last as long as their client likes, and
// those of administrators, are not counted.
type Inflight struct {
	reads, writes       atomic.Int64
	maxReads, maxWrites int64
}

// NewInflight allows so many at a time; 0 is no limit.
func NewInflight(maxReads, maxWrites int) *Inflight {
	return &Inflight{maxReads: int64(maxReads), maxWrites: int64(maxWrites)}
}

// Counts are the requests under way.
func (f *Inflight) Counts() (reads, writes int64) { return f.reads.Load(), f.writes.Load() }

// Begin takes a place for a request, or says that there is none. done gives it
// back.
func (f *Inflight) Begin(r *request.Request) (done func(), err error) {
	if r.LongRunning() {
		return func() {}, nil
	}
	count, limit := &f.writes, f.maxWrites
	if r.ReadOnly() {
		count, limit = &f.reads, f.maxReads
	}
	n := count.Add(1)
	if limit > 0 && n > limit && (r.User == nil || !r.User.In(authn.Masters)) {
		count.Add(-1)
		return nil, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1)
	}
	return func() { count.Add(-1) }, nil
}
