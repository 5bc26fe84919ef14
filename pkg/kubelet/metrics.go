package kubelet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// runtimeMetrics count the calls of the runtime, under upstream's names.
type runtimeMetrics struct {
	total, errors *prometheus.CounterVec
	duration      *prometheus.HistogramVec
}

func newRuntimeMetrics(r prometheus.Registerer) *runtimeMetrics {
	label := []string{"operation_type"}
	m := &runtimeMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total", Help: "Cumulative number of runtime operations by operation type.",
		}, label),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total", Help: "Cumulative number of runtime operation errors by operation type.",
		}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_runtime_operations_duration_seconds", Help: "Duration in seconds of runtime operations by operation type.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, label),
	}
	r.MustRegister(m.total, m.errors, m.duration)
	return m
}

func (m *runtimeMetrics) observe(operation string, took time.Duration, err error) {
	m.total.WithLabelValues(operation).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(operation).Inc()
	}
}
