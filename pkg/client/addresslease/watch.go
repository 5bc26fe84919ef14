package addresslease

import (
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Watch is what one process has seen of a Lease. The zero value has seen none.
type Watch struct {
	lease *coordinationv1.Lease
	at    time.Time // when its present version was first seen
}

// See takes a version of the Lease, wherever it comes from: an answer, a
// watch, a list. One older than what was seen before is left aside.
func (w *Watch) See(l *coordinationv1.Lease) {
	if w.lease != nil && revision(l) <= revision(w.lease) {
		return
	}
	w.lease, w.at = l, time.Now()
}

// Lease is the newest version seen, nil if none was. It is shared: copy it
// before a change.
func (w *Watch) Lease() *coordinationv1.Lease { return w.lease }

// Free is from when on the Lease is announced by nobody, if it stays as it was
// last seen. A write that replaces exactly that version takes it then.
func (w *Watch) Free() time.Time {
	if w.lease == nil || Holder(w.lease) == "" {
		return w.at
	}
	return w.at.Add(held(w.lease) + margin)
}

func revision(l *coordinationv1.Lease) uint64 {
	n, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
