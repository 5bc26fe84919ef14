package usage

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Point is one measurement of a node or a container.
type Point struct {
	Time   time.Time // when the kubelet measured
	Start  time.Time // when the container started; zero for a node
	CPU    float64   // core-seconds since Start
	Memory uint64    // working set in bytes
}

// Sample is what one kubelet measured.
type Sample struct {
	Node *Point // nil: not measured
	Pods map[types.NamespacedName]map[string]Point
}

// Usage is what a node or a container uses.
type Usage struct {
	Time   time.Time     // the end of the window
	Window time.Duration // in which the CPU rate was measured; more than 0
	CPU    int64         // nanocores
	Memory uint64        // bytes, at Time
}

// track is the newest point, and the one that its rate is computed from; nil if there
// is none yet.
type track struct {
	last Point
	base *Point
}

// minFresh is the minimum age of a new container whose rate is computed from its start:
// in less time, starting up says little of what it uses.
const minFresh = 10 * time.Second

// advance returns the track after the next point. A container that is younger than
// resolution has not been seen before: its CPU time was 0 when it started.
func (t track) advance(next Point, resolution time.Duration) track {
	out := track{last: next}
	age := next.Time.Sub(next.Start)
	switch {
	case !next.Start.IsZero() && age >= minFresh && age < resolution:
		out.base = &Point{Time: next.Start, Start: next.Start}
	case t.last.Time.IsZero() || !next.Start.Before(t.last.Time): // new, or restarted
	case next.Time.After(t.last.Time):
		out.base = &t.last
	case t.base != nil && t.base.Time.Before(next.Time): // the kubelet has not measured again
		out.base = t.base
	}
	return out
}

// maxNanocores is more than any node has, and fits an int64.
const maxNanocores = 1e18

// usage returns false if there is no rate: there is one point only, or the counter went
// back, as that of a rebooted node does.
func (t track) usage() (Usage, bool) {
	if t.base == nil || t.last.CPU < t.base.CPU {
		return Usage{}, false
	}
	window := t.last.Time.Sub(t.base.Time)
	nanocores := (t.last.CPU - t.base.CPU) / window.Seconds() * 1e9
	if window <= 0 || nanocores > maxNanocores {
		return Usage{}, false
	}
	return Usage{Time: t.last.Time, Window: window, CPU: int64(nanocores), Memory: t.last.Memory}, true
}
