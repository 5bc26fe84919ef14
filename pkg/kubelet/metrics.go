package kubelet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// runtimeMetrics count and time runtime calls, with upstream's names.
type runtimeMetrics struct {
	total, errors *prometheus.CounterVec
	duration      *prometheus.HistogramVec
}

func newRuntimeMetrics(r prometheus.Registerer) *runtimeMetrics {
	label := []string{"operation_type"}
	f := prom.For(r)
	return &runtimeMetrics{
		total:    f.CounterVec("kubelet_runtime_operations_total", "Cumulative number of runtime operations by operation type.", label...),
		errors:   f.CounterVec("kubelet_runtime_operations_errors_total", "Cumulative number of runtime operation errors by operation type.", label...),
		duration: f.HistogramVec("kubelet_runtime_operations_duration_seconds", "Duration in seconds of runtime operations by operation type.", prometheus.ExponentialBuckets(.005, 2.5, 14), label...),
	}
}

func (m *runtimeMetrics) observe(operation string, took time.Duration, err error) {
	m.total.WithLabelValues(operation).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(operation).Inc()
	}
}
