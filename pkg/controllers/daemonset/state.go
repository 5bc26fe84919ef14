package daemonset

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/controller/pods"
)

// state is what one reconcile looks at. Its methods do no I/O.
type state struct {
	*appsv1.DaemonSet
	hash  string // of the current revision
	nodes []*corev1.Node
	now   time.Time

	runs, keeps map[string]bool          // by node: whether a pod belongs there, may stay there
	pods        map[string][]*corev1.Pod // by node, in the order of oldestFirst

	recheck time.Duration // until a pod becomes available, or a failed one may go; 0: never
}

func newState(ds *appsv1.DaemonSet, hash string, nodes []*corev1.Node, owned []*corev1.Pod, now time.Time) *state {
	s := &state{
		DaemonSet: ds, hash: hash, nodes: nodes, now: now,
		runs: map[string]bool{}, keeps: map[string]bool{}, pods: map[string][]*corev1.Pod{},
	}
	eligible := eligibilityOf(ds)
	for _, n := range nodes {
		s.runs[n.Name], s.keeps[n.Name] = eligible.on(n)
	}
	for _, p := range owned {
		ended := pods.Terminal(p) && p.DeletionTimestamp != nil // only a finalizer or its kubelet keeps it
		if node := nodeOf(p); node != "" && !ended {
			s.pods[node] = append(s.pods[node], p)
		}
	}
	for _, list := range s.pods {
		slices.SortFunc(list, oldestFirst)
	}
	return s
}

// oldestFirst sorts pods that are bound to a node before others, then by age and name.
func oldestFirst(a, b *corev1.Pod) int {
	if (a.Spec.NodeName != "") != (b.Spec.NodeName != "") {
		if a.Spec.NodeName != "" {
			return -1
		}
		return 1
	}
	return pods.OldestFirst(a, b)
}

// nodesWithPods returns the names of these nodes, sorted. They may no longer exist.
func (s *state) nodesWithPods() []string { return slices.Sorted(maps.Keys(s.pods)) }

// desired returns the number of nodes that should run a pod.
func (s *state) desired() (n int) {
	for _, run := range s.runs {
		if run {
			n++
		}
	}
	return n
}

// updated reports whether the pod has the current template.
func (s *state) updated(p *corev1.Pod) bool {
	generation := s.Annotations[appsv1.DeprecatedTemplateGeneration]
	return p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == s.hash ||
		generation != "" && p.Labels[generationLabel] == generation
}

// available reports whether the pod has been ready for minReadySeconds.
func (s *state) available(p *corev1.Pod) bool {
	ok, wait := pods.Available(p, time.Duration(s.Spec.MinReadySeconds)*time.Second, s.now)
	s.lookAgain(wait)
	return ok
}

func (s *state) lookAgain(after time.Duration) {
	if after > 0 && (s.recheck == 0 || after < s.recheck) {
		s.recheck = after
	}
}

// status counts the nodes and their pods.
func (s *state) status() appsv1.DaemonSetStatus {
	out := *s.Status.DeepCopy()
	out.ObservedGeneration = s.Generation
	out.DesiredNumberScheduled = int32(s.desired())
	out.CurrentNumberScheduled, out.NumberMisscheduled, out.NumberReady, out.UpdatedNumberScheduled, out.NumberAvailable = 0, 0, 0, 0, 0
	for _, n := range s.nodes {
		list := s.pods[n.Name]
		if len(list) == 0 {
			continue
		}
		if !s.runs[n.Name] {
			out.NumberMisscheduled++
			continue
		}
		out.CurrentNumberScheduled++
		oldest := list[0]
		if pods.Ready(oldest) {
			out.NumberReady++
			if s.available(oldest) {
				out.NumberAvailable++
			}
		}
		if s.updated(oldest) {
			out.UpdatedNumberScheduled++
		}
	}
	out.NumberUnavailable = out.DesiredNumberScheduled - out.NumberAvailable
	return out
}
