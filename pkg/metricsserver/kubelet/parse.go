package kubelet

import (
	"fmt"
	"io"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/metricsserver/usage"
)

// The series of /metrics/resource that are read.
const (
	nodeCPU         = "node_cpu_usage_seconds_total"
	nodeMemory      = "node_memory_working_set_bytes"
	containerCPU    = "container_cpu_usage_seconds_total"
	containerMemory = "container_memory_working_set_bytes"
	containerStart  = "container_start_time_seconds"
)

// Parse reads the Prometheus text format. It drops a container, or the node, without a
// valid measurement of both CPU and memory. A measurement without a timestamp counts as
// made now.
func Parse(r io.Reader, now time.Time) (usage.Sample, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return usage.Sample{}, fmt.Errorf("parse metrics: %w", err)
	}
	p := parsed{now: now, node: &point{}, pods: map[types.NamespacedName]map[string]*point{}}
	p.each(families[nodeCPU], maxSeconds, p.self, (*point).setCPU)
	p.each(families[nodeMemory], maxBytes, p.self, (*point).setMemory)
	p.each(families[containerCPU], maxSeconds, p.container, (*point).setCPU)
	p.each(families[containerMemory], maxBytes, p.container, (*point).setMemory)
	p.each(families[containerStart], maxSeconds, p.container, (*point).setStart)
	return p.sample(), nil
}

// parsed collects the points of one answer.
type parsed struct {
	now  time.Time
	node *point
	pods map[types.NamespacedName]map[string]*point
}

// point is a measurement whose parts come from several series.
type point struct {
	usage.Point
	cpu, memory bool // measured
}

// each calls set for the values of a family, which may be nil, that are between 0 and most,
// with the point that the labels name.
func (p *parsed) each(f *dto.MetricFamily, most float64, of func(*dto.Metric) *point, set func(*point, float64, time.Time)) {
	for _, m := range f.GetMetric() {
		var value float64
		switch {
		case m.Counter != nil:
			value = m.Counter.GetValue()
		case m.Gauge != nil:
			value = m.Gauge.GetValue()
		case m.Untyped != nil:
			value = m.Untyped.GetValue()
		default:
			continue
		}
		at := p.now
		if m.TimestampMs != nil {
			at = time.UnixMilli(m.GetTimestampMs())
		}
		if to := of(m); to != nil && value >= 0 && value <= most { // NaN is neither
			set(to, value, at)
		}
	}
}

// The largest valid values: those of bytes and of seconds have room in an int64, the latter
// in nanoseconds.
const (
	maxBytes   = 1 << 62
	maxSeconds = maxBytes / 1e9
)

func (p *parsed) self(*dto.Metric) *point { return p.node }

// container returns nil if a label is missing.
func (p *parsed) container(m *dto.Metric) *point {
	var pod types.NamespacedName
	var name string
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case "namespace":
			pod.Namespace = l.GetValue()
		case "pod":
			pod.Name = l.GetValue()
		case "container":
			name = l.GetValue()
		}
	}
	if pod.Namespace == "" || pod.Name == "" || name == "" {
		return nil
	}
	if p.pods[pod] == nil {
		p.pods[pod] = map[string]*point{}
	}
	if p.pods[pod][name] == nil {
		p.pods[pod][name] = &point{}
	}
	return p.pods[pod][name]
}

func (p *point) setCPU(seconds float64, at time.Time) { p.CPU, p.Time, p.cpu = seconds, at, true }

func (p *point) setMemory(bytes float64, _ time.Time) { p.Memory, p.memory = uint64(bytes), true }

func (p *point) setStart(seconds float64, _ time.Time) {
	whole, fraction := math.Modf(seconds)
	p.Start = time.Unix(int64(whole), int64(fraction*1e9))
}

func (p *parsed) sample() usage.Sample {
	out := usage.Sample{Pods: make(map[types.NamespacedName]map[string]usage.Point, len(p.pods))}
	if p.node.cpu && p.node.memory {
		out.Node = &p.node.Point
	}
	for pod, containers := range p.pods {
		points := make(map[string]usage.Point, len(containers))
		for name, c := range containers {
			if c.cpu && c.memory {
				points[name] = c.Point
			}
		}
		if len(points) > 0 {
			out.Pods[pod] = points
		}
	}
	return out
}
