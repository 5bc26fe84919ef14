package stats

import (
	"fmt"
	"strings"
)

// series writes metrics in the Prometheus text format. It omits values that are nil.
type series struct {
	out  strings.Builder
	kind map[string]bool
}

func (s *series) add(name, kind, help, labels string, value *uint64, scale float64) {
	if value == nil {
		return
	}
	if !s.kind[name] {
		s.kind[name] = true
		fmt.Fprintf(&s.out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	fmt.Fprintf(&s.out, "%s%s %g\n", name, labels, float64(*value)*scale)
}

// ResourceMetrics returns the text of /metrics/resource, which the resource metrics
// pipeline of autoscalers reads.
func ResourceMetrics(sum *Summary) string {
	s := &series{kind: map[string]bool{}}
	for _, each := range []func(Pod, Container, string){
		func(_ Pod, c Container, l string) {
			s.add("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the container in core-seconds", l, cpuTime(c.CPU), 1e-9)
		},
		func(_ Pod, c Container, l string) {
			s.add("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes", l, workingSet(c.Memory), 1)
		},
		func(_ Pod, c Container, l string) {
			start := uint64(max(c.StartTime.Unix(), 0))
			s.add("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds", l, &start, 1)
		},
	} {
		for _, p := range sum.Pods {
			for _, c := range p.Containers {
				each(p, c, fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", c.Name, p.PodRef.Namespace, p.PodRef.Name))
			}
		}
	}
	s.add("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds", "", cpuTime(sum.Node.CPU), 1e-9)
	s.add("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes", "", workingSet(sum.Node.Memory), 1)
	for _, p := range sum.Pods {
		s.add("pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the pod in core-seconds", podLabels(p), cpuTime(p.CPU), 1e-9)
	}
	for _, p := range sum.Pods {
		s.add("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes", podLabels(p), workingSet(p.Memory), 1)
	}
	return s.out.String()
}

func podLabels(p Pod) string {
	return fmt.Sprintf("{namespace=%q,pod=%q}", p.PodRef.Namespace, p.PodRef.Name)
}

// ContainerMetrics returns the text of /metrics/cadvisor, for the metrics that are
// measured.
func ContainerMetrics(sum *Summary) string {
	s := &series{kind: map[string]bool{}}
	for _, m := range []struct {
		name, kind, help string
		value            func(Container) *uint64
		scale            float64
	}{
		{"container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", func(c Container) *uint64 { return cpuTime(c.CPU) }, 1e-9},
		{"container_memory_working_set_bytes", "gauge", "Current working set in bytes.", func(c Container) *uint64 { return workingSet(c.Memory) }, 1},
		{"container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory regardless of when it was accessed", func(c Container) *uint64 {
			if c.Memory == nil {
				return nil
			}
			return c.Memory.UsageBytes
		}, 1},
		{"container_fs_usage_bytes", "gauge", "Number of bytes that are consumed by the container on this filesystem.", func(c Container) *uint64 {
			if c.Rootfs == nil {
				return nil
			}
			return c.Rootfs.UsedBytes
		}, 1},
	} {
		for _, p := range sum.Pods {
			for _, c := range p.Containers {
				s.add(m.name, m.kind, m.help, fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", c.Name, p.PodRef.Namespace, p.PodRef.Name), m.value(c), m.scale)
			}
		}
	}
	return s.out.String()
}

func cpuTime(c *CPU) *uint64 {
	if c == nil {
		return nil
	}
	return c.UsageCoreNanoSeconds
}

func workingSet(m *Memory) *uint64 {
	if m == nil {
		return nil
	}
	return m.WorkingSetBytes
}
