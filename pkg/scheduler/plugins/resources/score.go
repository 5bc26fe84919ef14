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
	if f.strategy.Type == leastAllocated {
		return func(n snapshot.Node) int64 { return unused(counted, n) }
	}
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
	if len(counted) == 2 {
		return evenness(counted[0], counted[1])
	}
	return func(n snapshot.Node) int64 {
		alloc, used := n.Amounts()
		var buffer [4]float64
		fractions := buffer[:0]
		for i := range counted {
			r := &counted[i]
			if f, ok := r.fraction(alloc, used); ok {
				fractions = append(fractions, f)
			}
		}
		return int64((1 - deviation(fractions)) * float64(framework.MaxNodeScore))
	}
}

// evenness is the score of Balanced for two resources.
func evenness(a, b share) framework.NodeScore {
	return func(n snapshot.Node) int64 {
		alloc, used := n.Amounts()
		x, okX := a.fraction(alloc, used)
		y, okY := b.fraction(alloc, used)
		if !okX || !okY {
			return framework.MaxNodeScore
		}
		return int64((1 - math.Abs(x-y)/2) * float64(framework.MaxNodeScore))
	}
}

// fraction returns which part of a node's resource would be used; ok is false if it has none.
func (s *share) fraction(alloc, used *snapshot.Amounts) (part float64, ok bool) {
	capacity := s.of(&alloc.Resources)
	if capacity == 0 {
		return 0, false
	}
	return min(1, float64(s.of(&used.Resources)+s.want)/float64(capacity)), true
}

// deviation returns the standard deviation.
func deviation(values []float64) float64 {
	switch len(values) {
	case 0, 1:
		return 0
	case 2: // of three resources that count, a node may lack one
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
