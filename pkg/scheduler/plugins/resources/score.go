package resources

import (
	"math"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// LeastAllocated prefers nodes with much left.
type LeastAllocated struct{}

// Name is upstream's name of the plugin of which this is the score.
func (LeastAllocated) Name() string { return "NodeResourcesFit" }

// Normalize says that the scores are final.
func (LeastAllocated) Normalize() framework.Normalize { return framework.AsIs }

// Score is the share of CPU and memory that would be left, on average.
func (LeastAllocated) Score(pod *snapshot.Pod) func(snapshot.Node) int64 {
	wantCPU, wantMemory := pod.NonZero.CPU, pod.NonZero.Memory
	return func(n snapshot.Node) int64 {
		alloc, used := n.Amounts()
		var sum, kinds int64
		for _, r := range [...]struct{ alloc, used int64 }{
			{alloc.CPU, used.NonZeroCPU + wantCPU},
			{alloc.Memory, used.NonZeroMemory + wantMemory},
		} {
			if r.alloc == 0 {
				continue
			}
			kinds++
			if r.used <= r.alloc {
				sum += (r.alloc - r.used) * framework.MaxScore / r.alloc
			}
		}
		if kinds == 0 {
			return 0
		}
		return sum / kinds
	}
}

// Balanced prefers nodes whose CPU and memory would be used alike.
type Balanced struct{}

// Name is upstream's name of the plugin.
func (Balanced) Name() string { return "NodeResourcesBalancedAllocation" }

// Normalize says that the scores are final.
func (Balanced) Normalize() framework.Normalize { return framework.AsIs }

// Score is lower the further the used shares of CPU and memory lie apart. Pods
// that ask for nothing are not judged.
func (Balanced) Score(pod *snapshot.Pod) func(snapshot.Node) int64 {
	if pod.Requests.CPU == 0 && pod.Requests.Memory == 0 {
		return nil
	}
	wantCPU, wantMemory := pod.Requests.CPU, pod.Requests.Memory
	return func(n snapshot.Node) int64 {
		alloc, used := n.Amounts()
		if alloc.CPU == 0 || alloc.Memory == 0 {
			return framework.MaxScore
		}
		cpu := min(1, float64(used.CPU+wantCPU)/float64(alloc.CPU))
		memory := min(1, float64(used.Memory+wantMemory)/float64(alloc.Memory))
		return int64((1 - math.Abs(cpu-memory)/2) * float64(framework.MaxScore))
	}
}
