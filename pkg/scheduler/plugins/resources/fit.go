package resources

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const (
	reasonPods   = "Too many pods"
	insufficient = "Insufficient "
)

// Fit refuses nodes that have too little left of anything the pod asks for.
type Fit struct {
	reasons [16][]string // by which of the four below run short, a bit each
}

// What every node has: bits in the index into reasons.
const (
	shortPods = 1 << iota
	shortCPU
	shortMemory
	shortEphemeral
)

// NewFit makes the plugin.
func NewFit() *Fit {
	f := &Fit{}
	for short := range f.reasons {
		for _, r := range []struct {
			bit  int
			text string
		}{
			{shortPods, reasonPods},
			{shortCPU, insufficient + string(corev1.ResourceCPU)},
			{shortMemory, insufficient + string(corev1.ResourceMemory)},
			{shortEphemeral, insufficient + string(corev1.ResourceEphemeralStorage)},
		} {
			if short&r.bit != 0 {
				f.reasons[short] = append(f.reasons[short], r.text)
			}
		}
	}
	return f
}

// Name is upstream's name of the plugin.
func (*Fit) Name() string { return "NodeResourcesFit" }

// Wakes says what could change an answer.
func (*Fit) Wakes() framework.Event { return framework.PodGone | framework.NodeAllocatable }

// Filter asks what the node has too little of.
func (f *Fit) Filter(pod *snapshot.Pod) func(snapshot.Node) []string {
	want := pod.Requests
	extended := slices.Sorted(maps.Keys(want.Extended))
	return func(n snapshot.Node) []string {
		alloc, used := n.Amounts()
		short := 0
		if used.Pods+1 > alloc.Pods {
			short |= shortPods
		}
		if lacks(want.CPU, alloc.CPU-used.CPU) {
			short |= shortCPU
		}
		if lacks(want.Memory, alloc.Memory-used.Memory) {
			short |= shortMemory
		}
		if lacks(want.Ephemeral, alloc.Ephemeral-used.Ephemeral) {
			short |= shortEphemeral
		}
		reasons := f.reasons[short]
		for _, name := range extended {
			if lacks(want.Extended[name], alloc.Extended[name]-used.Extended[name]) {
				reasons = append(reasons[:len(reasons):len(reasons)], insufficient+string(name))
			}
		}
		return reasons
	}
}

// lacks compares a want with what is left. Who wants nothing lacks nothing,
// even on a node that was given too much.
func lacks(want, left int64) bool { return want > 0 && want > left }
