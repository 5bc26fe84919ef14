package nodelifecycle

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// health remembers, per node, when a new heartbeat was last seen.
type health struct {
	mu        sync.Mutex
	beats     map[string]*beat
	disrupted bool // no node at all was ready when somebody last looked
	evicted   map[string]time.Time
}

type beat struct {
	renewed  string // the lease's time, as the node wrote it
	reported string // the Ready condition's
	seen     time.Time
}

func newHealth() *health {
	return &health{beats: map[string]*beat{}, evicted: map[string]time.Time{}}
}

// observe returns how long the node has been silent.
func (h *health) observe(n *corev1.Node, lease *coordinationv1.Lease, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.beats[n.Name]
	if b == nil {
		b = &beat{seen: now}
		h.beats[n.Name] = b
	}
	renewed, reported := "", ""
	if lease != nil && lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
	}
	// What we wrote ourselves when the node fell silent is no heartbeat.
	if c := condition(n, corev1.NodeReady); c != nil && c.Status != corev1.ConditionUnknown {
		reported = string(c.Status) + c.LastHeartbeatTime.UTC().Format(time.RFC3339Nano)
	}
	if renewed != "" && renewed != b.renewed || reported != "" && reported != b.reported {
		b.seen = now
	}
	b.renewed, b.reported = renewed, reported
	return now.Sub(b.seen)
}

// silence is how long a node has been silent, as far as was observed.
func (h *health) silence(node string, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.beats[node]; b != nil {
		return now.Sub(b.seen)
	}
	return 0
}

func (h *health) forget(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.beats, node)
}

// judge says whether the whole cluster is out. When it comes back, all nodes
// get the time to be heard again: that they were silent was not their fault.
func (h *health) judge(out bool, now time.Time) (back bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	back = h.disrupted && !out
	if back {
		for _, b := range h.beats {
			b.seen = now
		}
	}
	h.disrupted = out
	return back
}

// mayEvict takes a turn in the zone's rate; wait is how long until the next one.
func (h *health) mayEvict(zone string, perSecond float64, now time.Time) (ok bool, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if perSecond <= 0 {
		return false, time.Minute
	}
	next := h.evicted[zone].Add(time.Duration(float64(time.Second) / perSecond))
	if now.Before(next) {
		return false, next.Sub(now)
	}
	h.evicted[zone] = now
	return true, 0
}
