package probes

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Series of a pod go with it: their number must not grow with the node's history.
func TestMetricsOfAPodGoWithIt(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}}
	m.observe(Liveness, pod, "c", Failure, time.Second)
	m.observe(Liveness, pod, "c", Success, 2*time.Second)
	series := func() map[string]int {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]int{}
		for _, f := range families {
			out[f.GetName()] = len(f.Metric)
			if h := f.Metric[0].GetHistogram(); h != nil && (h.GetSampleCount() != 2 || h.GetSampleSum() != 3) {
				t.Errorf("durations %v", h)
			}
		}
		return out
	}
	if got := series(); got["prober_probe_total"] != 2 || got["prober_probe_duration_seconds"] != 1 {
		t.Errorf("series %v", got)
	}
	m.Forget(pod)
	if got := series(); len(got) != 0 {
		t.Errorf("the pod is gone and leaves %v", got)
	}
}
