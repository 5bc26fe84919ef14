package pods

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/conditions"
)

// LeastUseful returns the n pods to delete. The first difference in this order decides: not
// bound to a node; phase (pending, unknown, running); not ready; lower deletion cost; more
// sibling pods on the node; ready for a shorter time; more restarts; younger. Ages are
// compared by their order of magnitude, so that the youngest of pods of about the same age is
// not always deleted (KEP-2185).
func LeastUseful(candidates []*corev1.Pod, n int, perNode map[string]int, now time.Time) []*corev1.Pod {
	if n >= len(candidates) {
		return candidates
	}
	ranked := make([]rank, len(candidates))
	for i, p := range candidates {
		ranked[i] = rankOf(p, perNode, now)
	}
	slices.SortFunc(ranked, rank.compare)
	out := make([]*corev1.Pod, n)
	for i := range out {
		out[i] = ranked[i].pod
	}
	return out
}

// rank holds the sort keys of a pod; smaller values are deleted first.
type rank struct {
	pod      *corev1.Pod
	bound    int
	phase    int
	ready    int
	cost     int
	crowd    int // negative: number of sibling pods on its node
	readyFor int // magnitude
	restarts int // negative
	age      int // magnitude
}

func rankOf(p *corev1.Pod, perNode map[string]int, now time.Time) rank {
	r := rank{
		pod:   p,
		phase: map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}[p.Status.Phase],
		cost:  deletionCost(p),
		crowd: -perNode[p.Spec.NodeName],
		age:   magnitude(p.CreationTimestamp.Time, now),
	}
	if p.Spec.NodeName != "" {
		r.bound = 1
	}
	if Ready(p) {
		r.ready = 1
		r.readyFor = magnitude(conditions.Find(p.Status.Conditions, corev1.PodReady).LastTransitionTime.Time, now)
	}
	for _, c := range p.Status.ContainerStatuses {
		r.restarts = min(r.restarts, -int(c.RestartCount))
	}
	return r
}

func (r rank) compare(o rank) int {
	return cmp.Or(
		cmp.Compare(r.bound, o.bound),
		cmp.Compare(r.phase, o.phase),
		cmp.Compare(r.ready, o.ready),
		cmp.Compare(r.cost, o.cost),
		cmp.Compare(r.crowd, o.crowd),
		cmp.Compare(r.readyFor, o.readyFor),
		cmp.Compare(r.restarts, o.restarts),
		cmp.Compare(r.age, o.age),
		cmp.Compare(r.pod.UID, o.pod.UID),
	)
}

// deletionCost returns the pod's deletion cost annotation, 0 if it is not a number.
func deletionCost(p *corev1.Pod) int {
	cost, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int(cost)
}

// magnitude returns the order of magnitude of the time since t. An unknown time
// counts as now.
func magnitude(t, now time.Time) int {
	d := now.Sub(t)
	if t.IsZero() || d <= 0 {
		return -1
	}
	return int(math.Log2(float64(d)))
}
