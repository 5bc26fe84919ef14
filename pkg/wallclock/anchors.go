package wallclock

import (
	"sync"
	"time"
)

// Anchors remembers when things of owners began, by the monotonic clock: the first time that
// it hears of one decides, so that a clock that is set changes no age. It is safe for
// concurrent use.
type Anchors[O, K comparable] struct {
	mu    sync.Mutex
	first map[O]map[K]time.Time
}

// Of returns when each thing of an owner began. recorded are all its things with the times
// that the API has for them, zero if it has none; others of the owner are forgotten.
func (a *Anchors[O, K]) Of(owner O, recorded map[K]time.Time, now time.Time) map[K]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[K]time.Time, len(recorded))
	for k, at := range recorded {
		switch first, known := a.first[owner][k]; {
		case known:
			out[k] = first
		case at.IsZero():
			out[k] = now
		default:
			out[k] = Anchor(at, now)
		}
	}
	delete(a.first, owner)
	if len(out) > 0 {
		if a.first == nil {
			a.first = map[O]map[K]time.Time{}
		}
		a.first[owner] = out
	}
	return out
}
