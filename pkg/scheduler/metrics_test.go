package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "1", "4Gi"))
		registry := prometheus.NewRegistry()
		stop := w.start(scheduler.Config{Registry: registry})
		w.create(pod("p1", "1"))
		w.create(pod("p2", "1"))
		gated := pod("p3", "1")
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
		w.create(gated)
		settle()
		want := []string{
			"scheduler_pending_pods active 0", "scheduler_pending_pods backoff 0", "scheduler_pending_pods gated 1", "scheduler_pending_pods unschedulable 1",
			"scheduler_schedule_attempts_total default-scheduler scheduled 1",
			"scheduler_schedule_attempts_total default-scheduler unschedulable 1",
		}
		if diff := cmp.Diff(want, series(t, registry, "scheduler_pending_pods", "scheduler_schedule_attempts_total")); diff != "" {
			t.Error(diff)
		}
		want = nil
		for _, point := range []string{
			"Bind default-scheduler Success 1", "Filter default-scheduler Success 2", "Permit default-scheduler Success 1",
			"PostBind default-scheduler Success 1", "PostFilter default-scheduler Success 0", "PostFilter default-scheduler Unschedulable 1",
			"PreBind default-scheduler Success 1", "Reserve default-scheduler Success 1", "Score default-scheduler Success 1",
		} {
			want = append(want, "scheduler_framework_extension_point_duration_seconds "+point)
		}
		if diff := cmp.Diff(want, series(t, registry, "scheduler_framework_extension_point_duration_seconds")); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(documented, metricNames(t, registry)); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// documented are metrics of upstream's instrumentation reference, with their labels.
var documented = []string{
	"scheduler_framework_extension_point_duration_seconds{extension_point,profile,status}",
	"scheduler_pending_pods{queue}",
	"scheduler_pod_scheduling_attempts{}",
	"scheduler_pod_scheduling_sli_duration_seconds{attempts}",
	"scheduler_preemption_attempts_total{}",
	"scheduler_preemption_victims{}",
	"scheduler_queue_incoming_pods_total{event,queue}",
	"scheduler_schedule_attempts_total{profile,result}",
	"scheduler_scheduling_algorithm_duration_seconds{}",
	"scheduler_scheduling_attempt_duration_seconds{profile,result}",
}

// metricNames returns the scheduler's metrics and the names of their labels.
func metricNames(t *testing.T, r *prometheus.Registry) (out []string) {
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "scheduler_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		out = append(out, f.GetName()+"{"+strings.Join(labels, ",")+"}")
	}
	return out
}

// series formats metrics: name, label values, and the value, or the number of samples.
func series(t *testing.T, r *prometheus.Registry, names ...string) []string {
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			out = append(out, fmt.Sprint(line, " ", m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount())))
		}
	}
	return out
}
