package replicaset

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controllers/pods"
)

func metav1Time(t time.Time) metav1.Time { return metav1.Time{Time: t} }

// leastUseful picks n of the pods to delete. In this order, the first
// difference decides who goes first: not bound to a node; less far in its life
// (pending, unknown, running); not ready; lower deletion cost; more pods of the
// family on its node; ready for a shorter time; more restarts; younger. Ages
// count by their order of magnitude, so that among pods of about the same age
// it is not always the youngest that go (KEP-2185).
func leastUseful(candidates []*corev1.Pod, n int, perNode map[string]int, now time.Time) []*corev1.Pod {
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

// rank holds what pods are compared by; smaller goes first.
type rank struct {
	pod      *corev1.Pod
	bound    int
	phase    int
	ready    int
	cost     int
	crowd    int // negative: pods of the family on its node
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
	if pods.Ready(p) {
		r.ready = 1
		r.readyFor = magnitude(pods.Condition(p, corev1.PodReady).LastTransitionTime.Time, now)
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

// deletionCost is what the user says about the pod; a value that is no number counts as 0.
func deletionCost(p *corev1.Pod) int {
	cost, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int(cost)
}

// magnitude is the order of magnitude of the time since t. A time that is not
// known counts as now.
func magnitude(t, now time.Time) int {
	d := now.Sub(t)
	if t.IsZero() || d <= 0 {
		return -1
	}
	return int(math.Log2(float64(d)))
}
