package resources

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const (
	reasonPods   = "Too many pods"
	insufficient = "Insufficient "
)

// Fit rejects nodes that lack a resource that the pod requests, and ranks the others by a
// Strategy.
type Fit struct {
	args     FitArgs
	backed   func(corev1.ResourceName) bool // whether devices stand for an extended resource; nil: never
	strategy Strategy
	statuses [1 << len(shortages) * 2]*framework.Status // by shortage, one bit each, and code
}

// Indexes of shortages: the resources that all nodes have.
const (
	shortPods = iota
	shortCPU
	shortMemory
	shortEphemeral
)

// shortages are the rejection reasons for these resources.
var shortages = [...]string{
	shortPods:      reasonPods,
	shortCPU:       insufficient + string(corev1.ResourceCPU),
	shortMemory:    insufficient + string(corev1.ResourceMemory),
	shortEphemeral: insufficient + string(corev1.ResourceEphemeralStorage),
}

// FitArgs are upstream's NodeResourcesFitArgs.
type FitArgs struct {
	IgnoredResources      []string  `json:"ignoredResources,omitempty"`      // extended resources that Filter ignores
	IgnoredResourceGroups []string  `json:"ignoredResourceGroups,omitempty"` // and their names' parts before the slash
	ScoringStrategy       *Strategy `json:"scoringStrategy,omitempty"`       // default: LeastAllocated, of CPU and memory
}

// NewFit returns the plugin. It is not safe for concurrent use.
func NewFit(args FitArgs) (*Fit, error) {
	f := &Fit{args: args}
	for i := range f.statuses {
		f.statuses[i] = rejection(i/2, framework.Code(i%2))
	}
	if args.ScoringStrategy != nil {
		f.strategy = *args.ScoringStrategy
	}
	return f, f.strategy.complete()
}

// Ignore makes Filter ignore further extended resources. Call it before the plugin is used.
func (f *Fit) Ignore(names ...string) {
	f.args.IgnoredResources = slices.Concat(f.args.IgnoredResources, names)
}

// Devices makes Filter accept nodes that do not have an extended resource for which devices of a
// class stand: the plugin DynamicResources looks for these. Call it before the plugin is used.
func (f *Fit) Devices(backed func(corev1.ResourceName) bool) { f.backed = backed }

// ignores reports whether Filter ignores an extended resource.
func (f *Fit) ignores(name corev1.ResourceName) bool {
	group, _, _ := strings.Cut(string(name), "/")
	return slices.Contains(f.args.IgnoredResources, string(name)) || slices.Contains(f.args.IgnoredResourceGroups, group)
}

// Name is upstream's name of the plugin.
func (*Fit) Name() string { return "NodeResourcesFit" }

// Reads returns the pod's requests, and for which of them devices stand.
func (f *Fit) Reads(pod *snapshot.Pod) []any {
	if devices := f.devicesFor(pod); devices != nil {
		return []any{&pod.Requests, &pod.NonZero, devices}
	}
	return []any{&pod.Requests, &pod.NonZero}
}

// devicesFor returns the extended resources of the pod for which devices stand.
func (f *Fit) devicesFor(pod *snapshot.Pod) (out []corev1.ResourceName) {
	if f.backed == nil || len(pod.Requests.Extended) == 0 {
		return nil
	}
	for name := range pod.Requests.Extended {
		if f.backed(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (*Fit) EventsToRegister() framework.Event {
	return framework.PodGone | framework.NodeAllocatable | framework.DeviceClassChanged
}

// PreFilter skips no pod: all nodes limit the number of pods.
func (f *Fit) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	want := pod.Requests
	extended := slices.DeleteFunc(slices.Sorted(maps.Keys(want.Extended)), f.ignores)
	devices := f.devicesFor(pod)
	return func(n snapshot.Node) *framework.Status {
		alloc, used := n.Amounts()
		short, code := 0, framework.Unschedulable
		if lacks(1, used.Pods, alloc.Pods, &code) {
			short |= 1 << shortPods
		}
		if lacks(want.CPU, used.CPU, alloc.CPU, &code) {
			short |= 1 << shortCPU
		}
		if lacks(want.Memory, used.Memory, alloc.Memory, &code) {
			short |= 1 << shortMemory
		}
		if lacks(want.Ephemeral, used.Ephemeral, alloc.Ephemeral, &code) {
			short |= 1 << shortEphemeral
		}
		var more []string
		for _, name := range extended {
			if alloc.Extended[name] == 0 && slices.Contains(devices, name) {
				continue
			}
			if lacks(want.Extended[name], used.Extended[name], alloc.Extended[name], &code) {
				more = append(more, insufficient+string(name))
			}
		}
		return f.status(short, code, more)
	}
}

// PreFilterRange is for pods without extended resources.
func (f *Fit) PreFilterRange(pod *snapshot.Pod) framework.RangeFilter {
	want := pod.Requests
	if len(want.Extended) > 0 {
		return nil
	}
	cpu, memory, disk := needed(want.CPU), needed(want.Memory), needed(want.Ephemeral)
	return func(snap *snapshot.Snapshot, from, until int, reject func(int)) {
		alloc, used := snap.AmountsOf(from, until)
		for i := range alloc {
			a, u := &alloc[i], &used[i]
			if 1 > a.Pods-u.Pods || cpu > a.CPU-u.CPU || memory > a.Memory-u.Memory || disk > a.Ephemeral-u.Ephemeral {
				reject(from + i)
			}
		}
	}
}

// needed is how much of a resource must be left. A pod that requests nothing fits on an
// overcommitted node, too.
func needed(want int64) int64 {
	if want == 0 {
		return math.MinInt64
	}
	return want
}

// lacks reports whether a node has less left than a pod requests. It sets code if the node
// would have too little even without any pods. A pod that requests nothing fits on an
// overcommitted node, too.
func lacks(want, used, alloc int64, code *framework.Code) bool {
	if want == 0 || want <= alloc-used {
		return false
	}
	if want > alloc {
		*code = framework.UnschedulableAndUnresolvable
	}
	return true
}

// status returns the rejection for the shortages; nil if there are none.
func (f *Fit) status(short int, code framework.Code, more []string) *framework.Status {
	if short == 0 && len(more) == 0 {
		return nil
	}
	s := f.statuses[short*2+int(code)]
	if len(more) == 0 {
		return s
	}
	return framework.NewStatus(code, slices.Concat(s.Reasons, more)...)
}

// rejection returns the status for a set of shortages, one bit each.
func rejection(short int, code framework.Code) *framework.Status {
	s := framework.NewStatus(code)
	for i, reason := range shortages {
		if short&(1<<i) != 0 {
			s.Reasons = append(s.Reasons, reason)
		}
	}
	return s
}
