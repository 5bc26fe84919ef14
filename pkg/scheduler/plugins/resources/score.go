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

// PreScoreRange is for the default strategy, of CPU and memory.
func (f *Fit) PreScoreRange(pod *snapshot.Pod) framework.RangeScore {
	list := f.strategy.Resources
	if f.strategy.Type != leastAllocated || !areCPUAndMemory(list) {
		return nil
	}
	cpu, memory := pod.NonZero.CPU, pod.NonZero.Memory
	ofCPU, ofMemory := list[0].Weight, list[1].Weight
	counted := shares(list, &snapshot.Resources{CPU: cpu, Memory: memory})
	return func(snap *snapshot.Snapshot, from int, weight int64, sums []int64) {
		alloc, used := snap.AmountsOf(from, from+len(sums))
		for i := range alloc {
			a, u := &alloc[i], &used[i]
			if a.CPU == 0 || a.Memory == 0 {
				sums[i] += weight * unused(counted, snap.At(from+i))
				continue
			}
			sum := free(a.CPU-u.NonZeroCPU-cpu, a.CPU)*ofCPU + free(a.Memory-u.NonZeroMemory-memory, a.Memory)*ofMemory
			if ofCPU+ofMemory == 2 {
				sums[i] += weight * (sum / 2)
			} else {
				sums[i] += weight * (sum / (ofCPU + ofMemory))
			}
		}
	}
}

func areCPUAndMemory(list []Resource) bool {
	return len(list) == 2 && basicOf(list[0].Name) == cpu && basicOf(list[1].Name) == memory
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

// PreScoreRange is for pods that request CPU or memory, if these count.
func (b Balanced) PreScoreRange(pod *snapshot.Pod) framework.RangeScore {
	cpu, memory := pod.Requests.CPU, pod.Requests.Memory
	if !areCPUAndMemory(b.resources) || cpu == 0 && memory == 0 {
		return nil
	}
	return func(snap *snapshot.Snapshot, from int, weight int64, sums []int64) {
		alloc, used := snap.AmountsOf(from, from+len(sums))
		for i := range alloc {
			a, u := &alloc[i], &used[i]
			score := framework.MaxNodeScore
			if a.CPU != 0 && a.Memory != 0 {
				score = even(portion(u.CPU+cpu, a.CPU), portion(u.Memory+memory, a.Memory))
			}
			sums[i] += weight * score
		}
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
		return even(x, y)
	}
}

// even is the score of two fractions: their standard deviation is half of their difference.
func even(x, y float64) int64 {
	return int64((1 - math.Abs(x-y)/2) * float64(framework.MaxNodeScore))
}

// portion is the fraction of a capacity, which is not 0, that would be used.
func portion(used, capacity int64) float64 { return min(1, float64(used)/float64(capacity)) }

// fraction returns which part of a node's resource would be used; ok is false if it has none.
func (s *share) fraction(alloc, used *snapshot.Amounts) (part float64, ok bool) {
	capacity := s.of(&alloc.Resources)
	if capacity == 0 {
		return 0, false
	}
	return portion(s.of(&used.Resources)+s.want, capacity), true
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
