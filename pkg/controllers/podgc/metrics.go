package podgc

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// Metrics are the controller's metrics, under upstream's names.
type Metrics struct{ deleted, failed *prometheus.CounterVec }

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := prom.For(r)
	return &Metrics{
		deleted: f.CounterVec("pod_gc_collector_force_delete_pods_total", "Pods that were deleted without their kubelet", "namespace", "reason"),
		failed:  f.CounterVec("pod_gc_collector_force_delete_pod_errors_total", "Deletions of such pods that failed", "namespace", "reason"),
	}
}

// done records the deletion of a pod.
func (m *Metrics) done(v victim, deleted bool, err error) {
	switch {
	case err != nil:
		m.failed.WithLabelValues(v.pod.Namespace, v.reason).Inc()
	case deleted:
		m.deleted.WithLabelValues(v.pod.Namespace, v.reason).Inc()
	}
}

// Reasons of deletions in metrics.
const (
	unscheduled = "unscheduled"    // it was never bound to a node
	orphaned    = "orphaned"       // its node no longer exists
	outOfUse    = "out-of-service" // its node is out of service
	terminated  = "terminated"     // it is one of too many that have terminated
)
