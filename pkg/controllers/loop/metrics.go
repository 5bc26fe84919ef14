package loop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the series of all loops of a process, under upstream's names.
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

// NewMetrics makes the series and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"name"}
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 12)
	m := &Metrics{
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "workqueue_depth", Help: "Keys that wait for a worker"}, labels),
		adds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workqueue_adds_total", Help: "Keys that became ready to be worked on"}, labels),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_queue_duration_seconds", Help: "How long keys waited for a worker", Buckets: buckets}, labels),
		worked: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_work_duration_seconds", Help: "How long a reconcile took", Buckets: buckets}, labels),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workqueue_retries_total", Help: "Reconciles that failed and are tried again"}, labels),
		longest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "workqueue_longest_running_processor_seconds", Help: "How long the oldest reconcile under way has been running"}, labels),
		unfinished: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "workqueue_unfinished_work_seconds", Help: "How long all reconciles under way have been running, added up"}, labels),
	}
	r.MustRegister(m.depth, m.adds, m.waited, m.worked, m.retries, m.longest, m.unfinished)
	return m
}

func (m *Metrics) of(name string) *series {
	return &series{
		depth: m.depth.WithLabelValues(name), adds: m.adds.WithLabelValues(name),
		retries: m.retries.WithLabelValues(name), waited: m.waited.WithLabelValues(name),
		worked: m.worked.WithLabelValues(name), longest: m.longest.WithLabelValues(name),
		unfinished: m.unfinished.WithLabelValues(name),
	}
}

// showUnderWay sets the gauges that say how long reconciles have been running.
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
