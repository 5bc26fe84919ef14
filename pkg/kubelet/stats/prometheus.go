package stats

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// series writes metrics in the Prometheus text format. It omits values that are nil.
type series struct {
	out  strings.Builder
	kind map[string]bool
}

// value is a measurement in units of a part of its series' unit: 1e9 for nanoseconds of
// a series in seconds. The time is omitted if it is zero.
type value struct {
	is   *uint64
	unit float64
	at   metav1.Time
}

func (s *series) add(name, kind, help, labels string, v value) {
	if v.is == nil {
		return
	}
	if !s.kind[name] {
		s.kind[name] = true
		fmt.Fprintf(&s.out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	fmt.Fprintf(&s.out, "%s%s %g", name, labels, float64(*v.is)/v.unit)
	if !v.at.IsZero() {
		fmt.Fprintf(&s.out, " %d", v.at.UnixMilli())
	}
	s.out.WriteByte('\n')
}

// ContainerMetrics returns the text of /metrics/cadvisor, for the metrics that are
// measured.
func ContainerMetrics(sum *Summary) string {
	s := &series{kind: map[string]bool{}}
	for _, m := range []struct {
		name, kind, help string
		value            func(Container) *uint64
		unit             float64
	}{
		{"container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", func(c Container) *uint64 { return cpuTime(c.CPU).is }, 1e9},
		{"container_memory_working_set_bytes", "gauge", "Current working set in bytes.", func(c Container) *uint64 { return workingSet(c.Memory).is }, 1},
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
				s.add(m.name, m.kind, m.help, containerLabels(p, c), value{is: m.value(c), unit: m.unit})
			}
		}
	}
	return s.out.String()
}
