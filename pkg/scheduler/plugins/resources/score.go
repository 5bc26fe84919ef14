package resources

import (
	"math"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// PreScore skips no pod.
func (f *Fit) PreScore(pod *snapshot.Pod) framework.NodeScore {
	wants := pod.Requests
	wants.CPU, wants.Memory = pod.NonZero.CPU, pod.NonZero.Memory
	counted := shares(f.strategy.Resources, &wants)
	return func(n snapshot.Node) int64 { return f.strategy.score(counted, n) }
}

// Normalize leaves the scores unchanged.
func (*Fit) Normalize() framework.Normalize { return framework.AsIs }

// Balanced prefers nodes whose resources would be used to equal fractions.
type Balanced struct{ resources []Resource }

// NewBalanced returns the plugin, for CPU and memory if the list is empty.
func NewBalanced(list []Resource) (Balanced, error) {
	list, err := completeResources(list)
	return Balanced{list}, err
}

// Name is upstream's name of the plugin.
func (Balanced) Name() string { return "NodeResourcesBalancedAllocation" }

// Reads returns what the pod requests of the resources.
func (b Balanced) Reads(pod *snapshot.Pod) []any {
	out := make([]any, len(b.resources))
	for i, r := range b.resources {
		s := share{name: r.Name, basic: basicOf(r.Name)}
		out[i] = s.of(&pod.Requests)
	}
	return out
}

// Normalize leaves the scores unchanged.
func (Balanced) Normalize() framework.Normalize { return framework.AsIs }

// PreScore skips pods that request none of the resources. The score decreases with the standard
// deviation of the used fractions.
func (b Balanced) PreScore(pod *snapshot.Pod) framework.NodeScore {
	counted := shares(b.resources, &pod.Requests)
	requested := false
	for _, r := range counted {
		requested = requested || r.want > 0
	}
	if !requested {
		return nil
	}
	return func(n snapshot.Node) int64 {
		alloc, used := n.Amounts()
		var buffer [4]float64
		fractions := buffer[:0]
		for i := range counted {
			r := &counted[i]
			if capacity := r.of(&alloc.Resources); capacity != 0 {
				fractions = append(fractions, min(1, float64(r.of(&used.Resources)+r.want)/float64(capacity)))
			}
		}
		return int64((1 - deviation(fractions)) * float64(framework.MaxNodeScore))
	}
}

// deviation returns the standard deviation.
func deviation(values []float64) float64 {
	switch len(values) {
	case 0, 1:
		return 0
	case 2:
		return math.Abs(values[0]-values[1]) / 2
	}
	var sum, squares float64
	for _, v := range values {
		sum += v
	}
	mean := sum / float64(len(values))
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares / float64(len(values)))
}
