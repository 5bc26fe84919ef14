package probes

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/prom"
)

// Metrics count the results of probes, with upstream's name. A nil *Metrics counts
// nothing.
type Metrics struct{ total *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{prom.For(r).CounterVec("prober_probe_total", "Cumulative number of a liveness, readiness or startup probe for a container by result.", "probe_type", "result", "container", "pod", "namespace", "pod_uid")}
}

func (m *Metrics) count(kind Kind, pod *corev1.Pod, container string, o Outcome) {
	if m == nil {
		return
	}
	result := map[Outcome]string{Success: "successful", Warning: "successful", Failure: "failed", Unknown: "unknown"}[o]
	m.total.WithLabelValues(string(kind), result, container, pod.Name, pod.Namespace, string(pod.UID)).Inc()
}

// Forget deletes the metrics of a pod that no longer exists.
func (m *Metrics) Forget(pod *corev1.Pod) {
	if m != nil {
		m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(pod.UID)})
	}
}
