package nodelifecycle

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"

	"podium/pkg/prom"
)

// Metrics are the controller's metrics, under upstream's names.
type Metrics struct{ evictions *prometheus.CounterVec }

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{prom.For(r).CounterVec("node_collector_evictions_total", "Nodes that got a NoExecute taint because they were not ready", "zone")}
}

// of returns the number of evictions in a node's zone, which upstream names by region and zone.
func (m *Metrics) of(n *corev1.Node) prometheus.Counter {
	return m.evictions.WithLabelValues(topology.GetZoneKey(n))
}
