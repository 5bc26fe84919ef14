package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/controller/pods"
	"podium/pkg/prom"
)

// Metrics are the controller's metrics, under upstream's names.
type Metrics struct {
	duration  *prometheus.HistogramVec
	syncs     *prometheus.CounterVec
	finished  *prometheus.CounterVec
	podsEnded *prometheus.CounterVec
	policy    *prometheus.CounterVec
	held      *prometheus.CounterVec
	indexes   *prometheus.CounterVec
	created   *prometheus.CounterVec
	elsewhere *prometheus.CounterVec
}

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := prom.For(r)
	const prefix = "job_controller_"
	sync := []string{"completion_mode", "result", "action"}
	return &Metrics{
		duration:  f.HistogramVec(prefix+"job_sync_duration_seconds", "Time of a reconcile of a job", prometheus.ExponentialBuckets(0.004, 2, 15), sync...),
		syncs:     f.CounterVec(prefix+"job_syncs_total", "Reconciles of jobs", sync...),
		finished:  f.CounterVec(prefix+"jobs_finished_total", "Jobs that have finished", "completion_mode", "result", "reason"),
		podsEnded: f.CounterVec(prefix+"job_pods_finished_total", "Pods that have ended and are counted in the status of their job", "completion_mode", "result"),
		policy:    f.CounterVec(prefix+"pod_failures_handled_by_failure_policy_total", "Failed pods that a rule of the pod failure policy matched", "action"),
		held:      f.CounterVec(prefix+"terminated_pods_tracking_finalizer_total", "Terminated pods that got (add) and lost (delete) the finalizer of job tracking", "event"),
		indexes:   f.CounterVec(prefix+"job_finished_indexes_total", "Completion indexes that have finished", "status", "backoffLimit"),
		created:   f.CounterVec(prefix+"job_pods_creation_total", "Pods that were created for jobs, or could not be", "reason", "status"),
		elsewhere: f.CounterVec(prefix+"jobs_by_external_controller_total", "Jobs that another controller manages", "controller_name"),
	}
}

// synced records a reconcile.
func (m *Metrics) synced(v *view, p plan, began time.Time, err error) {
	action, result := "reconciling", "success"
	switch {
	case len(p.create) > 0:
		action = "pods_created"
	case len(p.remove)+len(p.end) > 0:
		action = "pods_deleted"
	}
	if err != nil {
		result = "error"
	}
	labels := []string{string(*v.Spec.CompletionMode), result, action}
	m.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
	m.syncs.WithLabelValues(labels...).Inc()
}

// made records the creation of pods.
func (m *Metrics) made(v *view, wanted, created int) {
	reason := "new"
	switch {
	case v.Spec.PodReplacementPolicy != nil && *v.Spec.PodReplacementPolicy == batchv1.Failed && v.failed > 0:
		reason = "recreate_failed"
	case v.failed > 0 || len(v.terminating) > 0:
		reason = "recreate_terminating_or_failed"
	}
	m.created.WithLabelValues(reason, "succeeded").Add(float64(created))
	m.created.WithLabelValues(reason, "failed").Add(float64(wanted - created))
}

// wrote records what a status that was written has counted.
func (m *Metrics) wrote(v *view, n next) {
	mode, s, was := string(*v.Spec.CompletionMode), &n.status, &v.Status
	m.podsEnded.WithLabelValues(mode, "succeeded").Add(float64(max(0, s.Succeeded-was.Succeeded)))
	m.podsEnded.WithLabelValues(mode, "failed").Add(float64(max(0, s.Failed-was.Failed)))
	for action, count := range n.handled {
		m.policy.WithLabelValues(string(action)).Add(float64(count))
	}
	if v.indexed() {
		limit := "global"
		if v.perIndex() {
			limit = "perIndex"
			lost := 0
			if was.FailedIndexes != nil {
				lost = parseIndexes(*was.FailedIndexes, v.completions()).total()
			}
			m.indexes.WithLabelValues("failed", limit).Add(float64(max(0, v.lost.total()-lost)))
		}
		m.indexes.WithLabelValues("succeeded", limit).Add(float64(max(0, s.Succeeded-was.Succeeded)))
	}
	if c := n.finished; c != nil {
		result := "succeeded"
		if c.Type == batchv1.JobFailed {
			result = "failed"
		}
		m.finished.WithLabelValues(mode, result, c.Reason).Inc()
	}
}

// podChanged records terminated pods that get or lose the finalizer. It has the signature of
// an event handler of the pod informer.
func (m *Metrics) podChanged(old, new *corev1.Pod) {
	held := func(p *corev1.Pod) bool { return p != nil && tracked(p) && pods.Terminal(p) }
	switch was, is := held(old), held(new); {
	case is && !was:
		m.held.WithLabelValues("add").Inc()
	case was && !is:
		m.held.WithLabelValues("delete").Inc()
	}
}
