package statefulset

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

var (
	labelNames         = []string{"statefulset_namespace", "statefulset_name", "pod_management_policy"}
	maxUnavailableDesc = prometheus.NewDesc("statefulset_controller_statefulset_max_unavailable",
		"How many replicas a rolling update of a StatefulSet may make unavailable", labelNames, nil)
	unavailableDesc = prometheus.NewDesc("statefulset_controller_statefulset_unavailable_replicas",
		"How many replicas of a StatefulSet are unavailable", labelNames, nil)
)

// Metrics is a prometheus.Collector of the controller's metrics, under upstream's names. It
// collects nothing while another replica leads.
type Metrics struct {
	states atomic.Pointer[func() []*state]
}

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{}
	if r != nil {
		r.MustRegister(m)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	out <- maxUnavailableDesc
	out <- unavailableDesc
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	states := m.states.Load()
	if states == nil {
		return
	}
	for _, s := range (*states)() {
		labels := []string{s.set.Namespace, s.set.Name, string(s.set.Spec.PodManagementPolicy)}
		out <- prometheus.MustNewConstMetric(maxUnavailableDesc, prometheus.GaugeValue, float64(s.maxUnavailable()), labels...)
		out <- prometheus.MustNewConstMetric(unavailableDesc, prometheus.GaugeValue, float64(s.unavailable()), labels...)
	}
}

// rolling returns the present state of the sets that rolling updates concern, without
// revisions.
func (r *reconciler) rolling() (states []*state) {
	for _, set := range r.sets.List() {
		s := stateOf(set, r.members(set), "", "", time.Now())
		if !s.onDelete() && set.DeletionTimestamp == nil {
			states = append(states, s)
		}
	}
	return states
}

// members returns the pods of a set that have names of the set.
func (r *reconciler) members(set *appsv1.StatefulSet) (members []*corev1.Pod) {
	for _, pod := range r.ownedPods.By(set.UID) {
		if _, ok := ordinalOf(set, pod); ok {
			members = append(members, pod)
		}
	}
	return members
}
