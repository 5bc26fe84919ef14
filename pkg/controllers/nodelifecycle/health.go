package nodelifecycle

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/conditions"
)

// health records, per node, when a new heartbeat was last seen. It is safe for concurrent use.
type health struct {
	mu        sync.Mutex
	beats     map[string]*beat
	disrupted bool // no node was ready at the last check
	evicted   map[string]time.Time
}

type beat struct {
	renewed  string // renewTime of the lease, as the node wrote it
	reported string // status and heartbeat time of the Ready condition
	seen     time.Time
}

func newHealth() *health {
	return &health{beats: map[string]*beat{}, evicted: map[string]time.Time{}}
}

// observe records the node's heartbeats and returns the time since the last new one.
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
	// Unknown is this controller's own status, not a heartbeat.
	if c := conditions.Find(n.Status.Conditions, corev1.NodeReady); c != nil && c.Status != corev1.ConditionUnknown {
		reported = string(c.Status) + c.LastHeartbeatTime.UTC().Format(time.RFC3339Nano)
	}
	if renewed != "" && renewed != b.renewed || reported != "" && reported != b.reported {
		b.seen = now
	}
	b.renewed, b.reported = renewed, reported
	return now.Sub(b.seen)
}

// silence returns the time since the node's last new heartbeat; 0 for an unknown node.
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

// setDisrupted records whether no node of the cluster is ready. When the cluster recovers,
// recovered is true and all nodes start a new grace period, because the outage was not caused
// by the nodes.
func (h *health) setDisrupted(disrupted bool, now time.Time) (recovered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	recovered = h.disrupted && !disrupted
	if recovered {
		for _, b := range h.beats {
			b.seen = now
		}
	}
	h.disrupted = disrupted
	return recovered
}

// mayEvict reports whether the zone's eviction rate allows a taint now, and counts it;
// otherwise wait is the time until it does.
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
