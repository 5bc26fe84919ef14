package loop

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// Metrics are the metrics of all loops of a process, under upstream's names.
type Metrics struct {
	depth    *prometheus.GaugeVec
	adds     *prometheus.CounterVec
	waited   *prometheus.HistogramVec
	worked   *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	underWay *underWay
}

// series are the Metrics of one loop.
type series struct {
	depth          prometheus.Gauge
	adds, retries  prometheus.Counter
	waited, worked prometheus.Observer
	runs           *runs
}

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"name"}
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 12)
	f := prom.For(r)
	m := &Metrics{
		depth:    f.GaugeVec("workqueue_depth", "Keys that wait for a worker", labels...),
		adds:     f.CounterVec("workqueue_adds_total", "Keys that became ready to be worked on", labels...),
		waited:   f.HistogramVec("workqueue_queue_duration_seconds", "How long keys waited for a worker", buckets, labels...),
		worked:   f.HistogramVec("workqueue_work_duration_seconds", "How long a reconcile took", buckets, labels...),
		retries:  f.CounterVec("workqueue_retries_total", "Reconciles that failed and are tried again", labels...),
		underWay: &underWay{loops: map[string]*runs{}},
	}
	if r != nil {
		r.MustRegister(m.underWay)
	}
	return m
}

func (m *Metrics) of(name string) *series {
	return &series{
		depth: m.depth.WithLabelValues(name), adds: m.adds.WithLabelValues(name),
		retries: m.retries.WithLabelValues(name), waited: m.waited.WithLabelValues(name),
		worked: m.worked.WithLabelValues(name), runs: m.underWay.of(name),
	}
}
