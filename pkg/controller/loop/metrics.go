package loop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// Metrics are the metrics of all loops of a process, under upstream's names.
type Metrics struct {
	depth      *prometheus.GaugeVec
	adds       *prometheus.CounterVec
	waited     *prometheus.HistogramVec
	worked     *prometheus.HistogramVec
	retries    *prometheus.CounterVec
	longest    *prometheus.GaugeVec
	unfinished *prometheus.GaugeVec
}

// series are the Metrics of one loop.
type series struct {
	depth               prometheus.Gauge
	adds, retries       prometheus.Counter
	waited, worked      prometheus.Observer
	longest, unfinished prometheus.Gauge
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"name"}
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 12)
	f := prom.For(r)
	return &Metrics{
		depth:      f.GaugeVec("workqueue_depth", "Keys that wait for a worker", labels...),
		adds:       f.CounterVec("workqueue_adds_total", "Keys that became ready to be worked on", labels...),
		waited:     f.HistogramVec("workqueue_queue_duration_seconds", "How long keys waited for a worker", buckets, labels...),
		worked:     f.HistogramVec("workqueue_work_duration_seconds", "How long a reconcile took", buckets, labels...),
		retries:    f.CounterVec("workqueue_retries_total", "Reconciles that failed and are tried again", labels...),
		longest:    f.GaugeVec("workqueue_longest_running_processor_seconds", "How long the oldest reconcile under way has been running", labels...),
		unfinished: f.GaugeVec("workqueue_unfinished_work_seconds", "How long all reconciles under way have been running, added up", labels...),
	}
}

func (m *Metrics) of(name string) *series {
	return &series{
		depth: m.depth.WithLabelValues(name), adds: m.adds.WithLabelValues(name),
		retries: m.retries.WithLabelValues(name), waited: m.waited.WithLabelValues(name),
		worked: m.worked.WithLabelValues(name), longest: m.longest.WithLabelValues(name),
		unfinished: m.unfinished.WithLabelValues(name),
	}
}

// showUnderWay sets the gauges for the duration of running reconciles.
func (l *Loop) showUnderWay(now time.Time) {
	var sum, longest time.Duration
	for _, began := range l.began {
		d := now.Sub(began)
		sum += d
		longest = max(longest, d)
	}
	l.metrics.unfinished.Set(sum.Seconds())
	l.metrics.longest.Set(longest.Seconds())
}
