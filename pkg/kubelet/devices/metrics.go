package devices

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// Metrics are the metrics of the package, with upstream's names. A nil *Metrics counts
// nothing.
type Metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := prom.For(r)
	return &Metrics{
		registrations: f.CounterVec("kubelet_device_plugin_registration_total", "Cumulative number of device plugin registrations by resource name.", "resource_name"),
		allocations:   f.HistogramVec("kubelet_device_plugin_alloc_duration_seconds", "Duration in seconds of a device plugin's Allocate by resource name.", prometheus.DefBuckets, "resource_name"),
	}
}

func (m *Metrics) registered(resource string) {
	if m != nil {
		m.registrations.WithLabelValues(resource).Inc()
	}
}

func (m *Metrics) allocated(resource string, took time.Duration) {
	if m != nil {
		m.allocations.WithLabelValues(resource).Observe(took.Seconds())
	}
}
