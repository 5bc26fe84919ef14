package memorymanager

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// metrics are the metrics of the package, with upstream's names.
type metrics struct{ requests, errors prometheus.Counter }

func newMetrics(r prometheus.Registerer) *metrics {
	f := prom.For(r)
	return &metrics{
		requests: f.Counter("kubelet_memory_manager_pinning_requests_total", "Number of containers that were to get memory of certain NUMA nodes."),
		errors:   f.Counter("kubelet_memory_manager_pinning_errors_total", "Number of containers that could not get memory of certain NUMA nodes."),
	}
}

func (m *metrics) pinned(err error) {
	m.requests.Inc()
	if err != nil {
		m.errors.Inc()
	}
}
