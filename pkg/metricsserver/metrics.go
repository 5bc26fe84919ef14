package metricsserver

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/metricsserver/usage"
	"podium/pkg/prom"
)

// metrics have the names of upstream's metrics-server.
type metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, store *usage.Store) *metrics {
	f := prom.For(r)
	points := func(kind string, read func() int) {
		f := prom.For(prometheus.WrapRegistererWith(prometheus.Labels{"type": kind}, r))
		f.GaugeFunc("metrics_server_storage_points", "Number of metrics points stored.", func() float64 { return float64(read()) })
	}
	points("node", func() int { n, _ := store.Known(); return n })
	points("container", func() int { _, n := store.Known(); return n })
	return &metrics{
		requests: f.CounterVec("metrics_server_kubelet_request_total", "Number of requests sent to Kubelet API", "success"),
		duration: f.Histogram("metrics_server_kubelet_request_duration_seconds", "Duration of requests to Kubelet API in seconds", nil),
	}
}

func (m *metrics) observe(took time.Duration, err error) {
	success := "true"
	if err != nil {
		success = "false"
	}
	m.requests.WithLabelValues(success).Inc()
	m.duration.Observe(took.Seconds())
}
