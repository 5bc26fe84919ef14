package probes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/prom"
)

// Metrics count and time probes, with upstream's names. A nil *Metrics counts nothing.
type Metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := prom.For(r)
	return &Metrics{
		total:    f.CounterVec("prober_probe_total", "Cumulative number of a liveness, readiness or startup probe for a container by result.", "probe_type", "result", "container", "pod", "namespace", "pod_uid"),
		duration: f.HistogramVec("prober_probe_duration_seconds", "Duration in seconds for a probe response.", prometheus.DefBuckets, "probe_type", "container", "pod", "namespace"),
	}
}

func (m *Metrics) observe(kind Kind, pod *corev1.Pod, container string, o Outcome, took time.Duration) {
	if m == nil {
		return
	}
	result := map[Outcome]string{Success: "successful", Warning: "successful", Failure: "failed", Unknown: "unknown"}[o]
	m.total.WithLabelValues(string(kind), result, container, pod.Name, pod.Namespace, string(pod.UID)).Inc()
	m.duration.WithLabelValues(string(kind), container, pod.Name, pod.Namespace).Observe(took.Seconds())
}

// Forget deletes the metrics of a pod that no longer exists.
func (m *Metrics) Forget(pod *corev1.Pod) {
	if m != nil {
		m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(pod.UID)})
		m.duration.DeletePartialMatch(prometheus.Labels{"pod": pod.Name, "namespace": pod.Namespace})
	}
}
