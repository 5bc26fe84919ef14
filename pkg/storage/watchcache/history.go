package watchcache

import (
	"slices"
	"sort"
	"time"
)

// Limits of the history. A watcher that resumes within keepBusy finds its place
// even if more than Config.History changes have happened since (up to busyFactor
// times as many). Changes older than keepIdle are dropped even if they are few,
// because they keep unused objects in memory.
const (
	keepBusy   = 75 * time.Second
	keepIdle   = 3 * time.Minute
	busyFactor = 10
)

// history holds the recent changes in order of revision: every change with a
// revision greater than since. The lock of the cache guards it.
type history struct {
	since   int64
	changes []*change // only appended to and cut at the front, so a subslice stays valid without the lock
	dropped int       // number of changes before changes in the same array
}

func (h *history) add(c *change) { h.changes = append(h.changes, c) }

// after returns the changes after rev, or false if the history does not reach back
// to rev.
func (h *history) after(rev int64) ([]*change, bool) {
	if rev < h.since {
		return nil, false
	}
	i := sort.Search(len(h.changes), func(i int) bool { return h.changes[i].revision > rev })
	return h.changes[i:], true
}

// trim drops changes that are too old or too many.
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

// reset empties the history, which then begins after rev.
func (h *history) reset(rev int64) { *h = history{since: rev} }
