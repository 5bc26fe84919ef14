package topology

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// metrics are the metrics of the package, with upstream's names.
type metrics struct {
	requests, errors prometheus.Counter
	duration         prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := prom.For(r)
	return &metrics{
		requests: f.Counter("kubelet_topology_manager_admission_requests_total", "Number of pods for which resources were to be aligned."),
		errors:   f.Counter("kubelet_topology_manager_admission_errors_total", "Number of pods that were refused because resources could not be aligned or allocated."),
		duration: f.Histogram("kubelet_topology_manager_admission_duration_ms", "Duration in milliseconds of an admission.", prometheus.ExponentialBuckets(.05, 2, 15)),
	}
}

func (m *metrics) admitted(took time.Duration, err error) {
	m.requests.Inc()
	m.duration.Observe(float64(took) / float64(time.Millisecond))
	if err != nil {
		m.errors.Inc()
	}
}
