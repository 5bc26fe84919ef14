package stats

import "fmt"

// ResourceMetrics returns the text of /metrics/resource, which the resource metrics
// pipeline of autoscalers reads. A nil sum means that the measurement has failed.
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
func ResourceMetrics(sum *Summary) string {
	s := &series{kind: map[string]bool{}}
	failed := uint64(1)
	if sum != nil {
		failed = 0
		s.containers(sum)
		s.node(sum.Node)
		s.pods(sum)
	}
	s.add("resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise", "", value{is: &failed, unit: 1})
	return s.out.String()
}

func (s *series) containers(sum *Summary) {
	for _, m := range []struct {
		name, kind, help string
		value            func(Container) value
	}{
		{"container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the container in core-seconds", func(c Container) value { return cpuTime(c.CPU) }},
		{"container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes", func(c Container) value { return workingSet(c.Memory) }},
		{"container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds", startTime},
		{"container_swap_limit_bytes", "gauge", "Current amount of the container swap limit in bytes. Reported only on non-windows systems", func(c Container) value { return swapLimit(c.Swap) }},
		{"container_swap_usage_bytes", "gauge", "Current amount of the container swap usage in bytes. Reported only on non-windows systems", func(c Container) value { return swapUsage(c.Swap) }},
	} {
		for _, p := range sum.Pods {
			for _, c := range p.Containers {
				s.add(m.name, m.kind, m.help, containerLabels(p, c), m.value(c))
			}
		}
	}
}

func (s *series) node(n Node) {
	s.add("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds", "", cpuTime(n.CPU))
	s.add("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes", "", workingSet(n.Memory))
	s.add("node_swap_usage_bytes", "gauge", "Current swap usage of the node in bytes. Reported only on non-windows systems", "", swapUsage(n.Swap))
}

func (s *series) pods(sum *Summary) {
	for _, m := range []struct {
		name, kind, help string
		value            func(Pod) value
	}{
		{"pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the pod in core-seconds", func(p Pod) value { return cpuTime(p.CPU) }},
		{"pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes", func(p Pod) value { return workingSet(p.Memory) }},
		{"pod_swap_usage_bytes", "gauge", "Current amount of the pod swap usage in bytes. Reported only on non-windows systems", func(p Pod) value { return swapUsage(p.Swap) }},
	} {
		for _, p := range sum.Pods {
			s.add(m.name, m.kind, m.help, fmt.Sprintf("{namespace=%q,pod=%q}", p.PodRef.Namespace, p.PodRef.Name), m.value(p))
		}
	}
}

func containerLabels(p Pod, c Container) string {
	return fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", c.Name, p.PodRef.Namespace, p.PodRef.Name)
}

func cpuTime(c *CPU) value {
	if c == nil {
		return value{}
	}
	return value{c.UsageCoreNanoSeconds, 1e9, c.Time}
}

func workingSet(m *Memory) value {
	if m == nil {
		return value{}
	}
	return value{m.WorkingSetBytes, 1, m.Time}
}

func startTime(c Container) value {
	if c.StartTime.Unix() <= 0 {
		return value{}
	}
	nanos := uint64(c.StartTime.UnixNano())
	return value{is: &nanos, unit: 1e9}
}

func swapUsage(s *Swap) value {
	if s == nil {
		return value{}
	}
	return value{s.SwapUsageBytes, 1, s.Time}
}

// swapLimit is what a container uses and what is left to it.
func swapLimit(s *Swap) value {
	if s == nil || s.SwapAvailableBytes == nil {
		return value{}
	}
	limit := *s.SwapAvailableBytes
	if s.SwapUsageBytes != nil {
		limit += *s.SwapUsageBytes
	}
	return value{&limit, 1, s.Time}
}
