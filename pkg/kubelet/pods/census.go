package pods

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/kubelet/podspec"
)

// Census counts the pods of a Manager when metrics are read, under upstream's names. static
// is "true" for pods that are not from the API.
type Census struct{ *Manager }

var (
	desiredPods = prometheus.NewDesc("kubelet_desired_pods", "Number of pods that the kubelet is to run, by whether they are static.", []string{"static"}, nil)
	activePods  = prometheus.NewDesc("kubelet_active_pods", "Number of pods that count against the node's resources when others are admitted, by whether they are static.", []string{"static"}, nil)
	mirrorPods  = prometheus.NewDesc("kubelet_mirror_pods", "Number of mirror pods that the kubelet keeps in the API, one per static pod.", nil, nil)
	workingPods = prometheus.NewDesc("kubelet_working_pods", "Number of pods that the kubelet works on, by whether they are desired, orphaned or known only to the runtime, by their lifecycle, and by whether they are static.", []string{"config", "lifecycle", "static"}, nil)
)

// working are the labels of kubelet_working_pods.
type working struct{ config, lifecycle, static string }

// Describe implements prometheus.Collector.
func (c Census) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{desiredPods, activePods, mirrorPods, workingPods} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c Census) Collect(out chan<- prometheus.Metric) {
	desired, active, work := map[string]int{"": 0, "true": 0}, map[string]int{"": 0, "true": 0}, map[working]int{}
	mirrors := 0
	c.mu.Lock()
	for _, w := range c.workers {
		n := w.labels()
		work[n]++
		if n.config != "desired" {
			continue
		}
		desired[n.static]++
		if n.static != "" {
			mirrors++
		}
	}
	for _, pod := range c.queued {
		desired[isStatic(podspec.Static(pod))]++
	}
	for _, pod := range c.counted {
		active[isStatic(podspec.Static(pod))]++
	}
	c.mu.Unlock()
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(mirrorPods, mirrors)
	for _, static := range []string{"", "true"} {
		gauge(desiredPods, desired[static], static)
		gauge(activePods, active[static], static)
	}
	for n, count := range work {
		gauge(workingPods, count, n.config, n.lifecycle, n.static)
	}
}

// labels returns how kubelet_working_pods counts the pod. Any goroutine may call it.
func (i *inbox) labels() working {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := working{config: "desired", lifecycle: "sync", static: isStatic(podspec.Static(i.desired))}
	switch {
	case i.removed && len(i.desired.Spec.Containers) == 0:
		n.config = "runtime_only"
	case i.removed:
		n.config = "orphan"
	}
	switch i.reached {
	case terminating:
		n.lifecycle = "terminating"
	case gone:
		n.lifecycle = "terminated"
	}
	return n
}

// isStatic returns the value of the label static.
func isStatic(is bool) string {
	if is {
		return "true"
	}
	return ""
}
