package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/scheduler/queue"
)

// Label values.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"

	profile = "default-scheduler"
)

// metrics have upstream's names.
type metrics struct {
	registry  prometheus.Registerer
	attempts  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	algorithm prometheus.Histogram
	tries     prometheus.Histogram
	sli       *prometheus.HistogramVec
	incoming  *prometheus.CounterVec
	leader    *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		registry: r,
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total", Help: "Attempts to schedule a pod, by result."}, []string{"profile", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_attempt_duration_seconds", Help: "Time of an attempt: finding a node and binding.", Buckets: seconds}, []string{"profile", "result"}),
		algorithm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_algorithm_duration_seconds", Help: "Time of finding a node.", Buckets: prometheus.ExponentialBuckets(0.00001, 2, 18)}),
		tries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_attempts", Help: "Attempts it took to schedule a pod.", Buckets: prometheus.ExponentialBuckets(1, 2, 5)}),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_sli_duration_seconds", Help: "Time from a pod's coming into the queue until it was bound.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 20)}, []string{"attempts"}),
		incoming: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_queue_incoming_pods_total", Help: "Pods that came into a queue, by what brought them."}, []string{"queue", "event"}),
		leader: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status", Help: "1 if this replica leads."}, []string{"name"}),
	}
	r.MustRegister(m.attempts, m.duration, m.algorithm, m.tries, m.sli, m.incoming, m.leader)
	return m
}

// watch shows how many pods wait in the queue that current returns, if any.
func (m *metrics) watch(current func() *queue.Queue) {
	gauge := func(name string, pick func(a, b, u int) int) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "scheduler_pending_pods", Help: "Pods that wait for a node.", ConstLabels: prometheus.Labels{"queue": name},
		}, func() float64 {
			q := current()
			if q == nil {
				return 0
			}
			return float64(pick(q.Counts()))
		}))
	}
	gauge(queue.Active, func(a, _, _ int) int { return a })
	gauge(queue.Backoff, func(_, b, _ int) int { return b })
	gauge(queue.Unschedulable, func(_, _, u int) int { return u })
}

func (m *metrics) moved(to, why string) { m.incoming.WithLabelValues(to, why).Inc() }

func (m *metrics) attempt(result string, began time.Time) {
	m.attempts.WithLabelValues(profile, result).Inc()
	m.duration.WithLabelValues(profile, result).Observe(time.Since(began).Seconds())
}

// maxAttemptsLabel keeps the series few, as upstream does.
const maxAttemptsLabel = 15

func (m *metrics) scheduled(a *queue.Attempt, began time.Time) {
	m.attempt(resultScheduled, began)
	m.tries.Observe(float64(a.Number))
	label := strconv.Itoa(a.Number)
	if a.Number > maxAttemptsLabel {
		label = strconv.Itoa(maxAttemptsLabel) + "+"
	}
	m.sli.WithLabelValues(label).Observe(time.Since(a.Added).Seconds())
}

func (m *metrics) leading(name string) func(bool) {
	g := m.leader.WithLabelValues(name)
	return func(yes bool) {
		if yes {
			g.Set(1)
		} else {
			g.Set(0)
		}
	}
}
