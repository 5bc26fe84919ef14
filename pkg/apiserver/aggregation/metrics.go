package aggregation

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// metrics are the series of upstream's aggregator.
type metrics struct {
	unavailable *prometheus.GaugeVec
	turned      *prometheus.CounterVec
}

func newMetrics(r *prometheus.Registry) *metrics {
	f := prom.For(r)
	return &metrics{
		unavailable: f.GaugeVec("aggregator_unavailable_apiservice", "Gauge of APIServices which are marked as unavailable broken down by APIService name.", "name"),
		turned:      f.CounterVec("aggregator_unavailable_apiservice_total", "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.", "name", "reason"),
	}
}

func (m *metrics) observe(name string, available bool) {
	value := 1.0
	if available {
		value = 0
	}
	m.unavailable.WithLabelValues(name).Set(value)
}

func (m *metrics) forget(name string) { m.unavailable.DeleteLabelValues(name) }
