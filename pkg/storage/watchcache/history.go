package watchcache

import (
	"slices"
	"sort"
	"time"
)

// How long and how much of the past is kept. A watcher that comes back within
// keepBusy finds its place even if more than Config.History changes happened
// since (up to busyFactor times as many); what is older than keepIdle is
// dropped even if it is little, because it pins objects that nobody sees.
const (
	keepBusy   = 75 * time.Second
	keepIdle   = 3 * time.Minute
	busyFactor = 10
)

// history is the recent changes in order of revision. It knows every change
// with a revision greater than since.
type history struct {
	since   int64
	changes []*change // only appended to and cut at the front: a part of it stays valid without a lock
	dropped int       // in front of changes, in the same array
}

func (h *history) add(c *change) { h.changes = append(h.changes, c) }

// after is what happened after rev; false if that is no longer known.
func (h *history) after(rev int64) ([]*change, bool) {
	if rev < h.since {
		return nil, false
	}
	i := sort.Search(len(h.changes), func(i int) bool { return h.changes[i].revision > rev })
	return h.changes[i:], true
}

// trim forgets what is too old or too much.
func (h *history) trim(limit int, now time.Time) {
	busy, idle := now.Add(-keepBusy).UnixNano(), now.Add(-keepIdle).UnixNano()
	n := 0
	for n < len(h.changes) {
		left, at := len(h.changes)-n, h.changes[n].at
		if at > idle && (left <= limit || at > busy && left <= busyFactor*limit) {
			break
		}
		n++
	}
	if n == 0 {
		return
	}
	h.since = h.changes[n-1].revision
	h.changes = h.changes[n:]
	if h.dropped += n; h.dropped > len(h.changes) {
		h.changes, h.dropped = slices.Clone(h.changes), 0
	}
}

// reset forgets everything before rev.
func (h *history) reset(rev int64) { *h = history{since: rev} }
