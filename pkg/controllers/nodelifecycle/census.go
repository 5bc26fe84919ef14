package nodelifecycle

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// censusEvery is how long a count of all nodes is used: when thousands of nodes fail at
// once, each of them asks for one.
const censusEvery = time.Second

// censuses counts the ready nodes of each zone. The zero value is ready for use. It is safe
// for concurrent use.
type censuses struct {
	mu    sync.Mutex
	taken time.Time
	zones map[string]census
	ready map[string]bool // nodes, by name
}

// without returns the counts of n's zone, with n as not ready, and whether any other node of
// the cluster is ready. count is called for all nodes if the last count is too old.
func (c *censuses) without(n *corev1.Node, count func(now time.Time, add func(n *corev1.Node, ready bool)), now time.Time) (zone census, anyReady bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones == nil || now.Sub(c.taken) >= censusEvery {
		c.taken, c.zones, c.ready = now, map[string]census{}, map[string]bool{}
		count(now, c.add)
	}
	zone, others := c.zones[zoneOf(n)], len(c.ready)
	if c.ready[n.Name] {
		zone.ready--
		zone.unready++
		others--
	}
	return zone, others > 0
}

func (c *censuses) add(n *corev1.Node, ready bool) {
	zone := c.zones[zoneOf(n)]
	if ready {
		zone.ready++
		c.ready[n.Name] = true
	} else {
		zone.unready++
	}
	c.zones[zoneOf(n)] = zone
}

// countReady calls add for all nodes. A node counts as ready only if it reported recently: in
// an outage of all nodes, they differ only in when their grace period ends.
func (r *reconciler) countReady(now time.Time, add func(n *corev1.Node, ready bool)) {
	fresh := max(r.Options.GracePeriod/2, minFresh)
	for _, n := range r.nodes.List() {
		add(n, readiness(n) == corev1.ConditionTrue && r.health.silence(n.Name, now) < fresh)
	}
}
