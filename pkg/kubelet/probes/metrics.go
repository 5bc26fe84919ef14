package probes

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Metrics counts what probes found, under upstream's name.
type Metrics struct{ total *prometheus.CounterVec }

// NewMetrics registers the series.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "prober_probe_total",
		Help: "Cumulative number of a liveness, readiness or startup probe for a container by result.",
	}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"})}
	r.MustRegister(m.total)
	return m
}

func (m *Metrics) count(kind Kind, pod *corev1.Pod, container string, o Outcome) {
	if m == nil {
		return
	}
	result := map[Outcome]string{Success: "successful", Warning: "successful", Failure: "failed", Unknown: "unknown"}[o]
	m.total.WithLabelValues(string(kind), result, container, pod.Name, pod.Namespace, string(pod.UID)).Inc()
}

// Forget drops the series of a pod that is gone.
func (m *Metrics) Forget(pod *corev1.Pod) {
	if m != nil {
		m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(pod.UID)})
	}
}
