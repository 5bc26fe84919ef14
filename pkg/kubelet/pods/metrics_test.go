package pods

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/cri/crifake"
)

// series returns the number of samples and their sum of a histogram, and the value of a
// counter as the sum.
func series(t *testing.T, r *prometheus.Registry, name string) (count uint64, sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		m := f.GetMetric()[0]
		return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum() + m.GetCounter().GetValue()
	}
	t.Fatalf("no metric %s", name)
	return 0, 0
}

// The start of a pod is counted once, by the kubelet that started it. Its SLI leaves out what
// takes long because of the pod itself, and pods with data.
func TestStartsOfPodsAreMeasured(t *testing.T) {
	var registry *prometheus.Registry
	slow := crifake.Config{
		Images: []string{},
		Latency: func(operation string) time.Duration {
			return map[string]time.Duration{"PullImage": 5 * time.Second, "RunPodSandbox": 3 * time.Second}[operation]
		},
		Behave: func(s crifake.Start) crifake.Behaviour {
			return crifake.Behaviour{Exits: s.Container == "init", ExitAfter: 20 * time.Second}
		},
	}
	bubbleWith(t, slow, func(r *rig) {
		r.tweak = func(c *Config) {
			registry = prometheus.NewRegistry()
			c.Metrics = NewMetrics(registry)
		}
	}, func(r *rig) {
		check := func(metric string, count uint64, least, most float64) {
			r.t.Helper()
			if n, sum := series(r.t, registry, metric); n != count || sum < least || sum > most {
				r.t.Errorf("%s has %d samples, sum %v; want %d, %v to %v", metric, n, sum, count, least, most)
			}
		}
		r.api.create(newPod("a", withInit("init"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "app:2"
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}))
		r.pass(time.Minute)
		check("kubelet_started_pods_total", 0, 1, 1)
		check("kubelet_pod_start_duration_seconds", 1, 30, 32)    // 5 + 20 + 5, and little else
		check("kubelet_pod_start_sli_duration_seconds", 1, 0, .5) // the sandbox is made during the first pull
		r.api.create(newPod("data", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: r.dir}}}}
		}))
		r.api.create(newPod("b"))
		r.pass(time.Minute)
		check("kubelet_started_pods_total", 0, 3, 3)
		check("kubelet_pod_start_duration_seconds", 3, 36, 38)
		check("kubelet_pod_start_sli_duration_seconds", 2, 3, 3.5)
		r.restart()
		r.pass(time.Minute)
		check("kubelet_started_pods_total", 0, 0, 0)
		check("kubelet_pod_start_duration_seconds", 0, 0, 0)
		check("kubelet_pod_start_sli_duration_seconds", 0, 0, 0)
	})
}
