package proxy

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// health tracks whether the rules keep up with the cluster.
type health struct {
	pending *pending
	timeout time.Duration
	node    func() (*corev1.Node, bool)

	mu   sync.Mutex
	last time.Time
}

func (h *health) updated(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = at
}

// ok reports whether no change has waited for longer than the timeout, and returns
// when the rules were last updated.
func (h *health) ok(now time.Time) (last time.Time, ok bool) {
	h.mu.Lock()
	last = h.last
	h.mu.Unlock()
	oldest := h.pending.oldest()
	return last, !last.IsZero() && (oldest.IsZero() || now.Sub(oldest) < h.timeout)
}

// Healthy reports whether the rules keep up with the cluster. It is safe for
// concurrent use.
func (p *Proxy) Healthy() bool {
	_, ok := p.health.ok(time.Now())
	return ok
}

// eligible reports whether load balancers should send traffic to the node: not if it
// is about to be removed.
func (h *health) eligible() bool {
	n, ok := h.node()
	if !ok {
		return true
	}
	if n.DeletionTimestamp != nil {
		return false
	}
	for _, t := range n.Spec.Taints {
		if t.Key == "ToBeDeletedByClusterAutoscaler" {
			return false
		}
	}
	return true
}

// Handler serves /healthz, the health of the node for load balancers, and /livez and
// /readyz, the health of this process.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { p.health.answer(w, p.health.eligible()) })
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { p.health.answer(w, true) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { p.health.answer(w, true) })
	return mux
}

func (h *health) answer(w http.ResponseWriter, eligible bool) {
	now := time.Now()
	last, ok := h.ok(now)
	if ok {
		last = now // no change is pending: the rules are current
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !ok || !eligible {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, `{"lastUpdated": %q,"currentTime": %q, "nodeEligible": %v}`, last, now, h.eligible())
}
