package addresslease

import (
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Watch is what one process has observed of a Lease. The zero value has observed
// nothing. It is not safe for concurrent use.
type Watch struct {
	lease *coordinationv1.Lease
	at    time.Time // when the current version was first observed
}

// See records a version of the Lease, from a response, a watch or a list. It ignores
// versions that are not newer than the recorded one.
func (w *Watch) See(l *coordinationv1.Lease) {
	if w.lease != nil && revision(l) <= revision(w.lease) {
		return
	}
	w.lease, w.at = l, time.Now()
}

// Lease returns the newest observed version, nil if there is none. It is shared:
// callers must not modify it.
func (w *Watch) Lease() *coordinationv1.Lease { return w.lease }

// Free returns the time from which on no node announces the address, if the Lease
// does not change. From then on a node may acquire it, with a write that is
// conditional on the observed resourceVersion.
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
