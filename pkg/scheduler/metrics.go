package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/prom"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/queue"
)

// Label values.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

// metrics are the scheduler's metrics, with upstream's names.
type metrics struct {
	registry  prometheus.Registerer
	attempts  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	algorithm prometheus.Histogram
	tries     prometheus.Histogram
	sli       *prometheus.HistogramVec
	incoming  *prometheus.CounterVec
	leader    *prometheus.GaugeVec

	points *prometheus.HistogramVec

	preemptions prometheus.Counter
	victims     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	f := prom.For(r)
	return &metrics{
		registry:  r,
		attempts:  f.CounterVec("scheduler_schedule_attempts_total", "Attempts to schedule a pod, by result.", "profile", "result"),
		duration:  f.HistogramVec("scheduler_scheduling_attempt_duration_seconds", "Time of an attempt: finding a node and binding.", seconds, "profile", "result"),
		algorithm: f.Histogram("scheduler_scheduling_algorithm_duration_seconds", "Time of finding a node.", prometheus.ExponentialBuckets(0.00001, 2, 18)),
		tries:     f.Histogram("scheduler_pod_scheduling_attempts", "Number of attempts to schedule a pod.", prometheus.ExponentialBuckets(1, 2, 5)),
		sli:       f.HistogramVec("scheduler_pod_scheduling_sli_duration_seconds", "Time from entering the queue until the pod was bound.", prometheus.ExponentialBuckets(0.01, 2, 20), "attempts"),
		incoming:  f.CounterVec("scheduler_queue_incoming_pods_total", "Pods added to a queue, by the event that added them.", "queue", "event"),
		leader:    f.GaugeVec("leader_election_master_status", "1 if this replica leads.", "name"),

		points: f.HistogramVec("scheduler_framework_extension_point_duration_seconds", "Time of all plugins of an extension point for a pod.",
			prometheus.ExponentialBuckets(0.0001, 2, 12), "extension_point", "status", "profile"),

		preemptions: f.Counter("scheduler_preemption_attempts_total", "Attempts to preempt pods."),
		victims:     f.Histogram("scheduler_preemption_victims", "Number of pods evicted for a pod.", prometheus.ExponentialBuckets(1, 2, 7)),
	}
}

// observer returns an observer of a profile's extension points. It finds the series of successes, which
// are most, in a table: the scheduling cycle waits for it.
func (m *metrics) observer(profile string) framework.Observer {
	succeeded := map[string]prometheus.Observer{}
	for _, point := range framework.Points() {
		succeeded[point] = m.points.WithLabelValues(point, framework.ResultSuccess, profile)
	}
	return func(point, result string, took time.Duration) {
		series := succeeded[point]
		if result != framework.ResultSuccess {
			series = m.points.WithLabelValues(point, result, profile)
		}
		series.Observe(took.Seconds())
	}
}

// watch exports the number of pods in the queue that current returns; 0 if it returns nil.
func (m *metrics) watch(current func() *queue.Queue) {
	gauge := func(name string, count func(q *queue.Queue) int) {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"queue": name}, m.registry)
		prom.For(labelled).GaugeFunc("scheduler_pending_pods", "Pending pods, by queue.", func() float64 {
			q := current()
			if q == nil {
				return 0
			}
			return float64(count(q))
		})
	}
	gauge(queue.Active, func(q *queue.Queue) int { n, _, _ := q.Counts(); return n })
	gauge(queue.Backoff, func(q *queue.Queue) int { _, n, _ := q.Counts(); return n })
	gauge(queue.Unschedulable, func(q *queue.Queue) int { _, _, n := q.Counts(); return n })
	gauge(queue.Gated, (*queue.Queue).Gated)
}

func (m *metrics) moved(to, why string) { m.incoming.WithLabelValues(to, why).Inc() }

func (m *metrics) attempt(pod *corev1.Pod, result string, began time.Time) {
	m.attempts.WithLabelValues(pod.Spec.SchedulerName, result).Inc()
	m.duration.WithLabelValues(pod.Spec.SchedulerName, result).Observe(time.Since(began).Seconds())
}

// maxAttemptsLabel limits the number of series, as upstream does.
const maxAttemptsLabel = 15

func (m *metrics) scheduled(a *queue.Attempt, began time.Time) {
	m.attempt(a.Pod, resultScheduled, began)
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
