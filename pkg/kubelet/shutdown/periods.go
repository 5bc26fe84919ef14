package shutdown

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// systemCritical is the lowest priority of critical pods.
const systemCritical = 2000000000

// Period is the time that pods of a range of priorities get to end.
type Period struct {
	Priority int32 // the lowest priority; the next Period limits the range
	Grace    time.Duration
}

// Periods are the periods of a shutdown. Pods of the lowest priorities end first.
type Periods []Period

// Split returns the periods for a shutdown that takes at most whole, of which critical
// pods get the last part; none if whole is 0.
func Split(whole, critical time.Duration) Periods {
	if whole == 0 {
		return nil
	}
	return Periods{{Priority: 0, Grace: whole - critical}, {Priority: systemCritical, Grace: critical}}
}

// Total returns how long a shutdown takes at most.
func (p Periods) Total() time.Duration {
	var sum time.Duration
	for _, one := range p {
		sum += one.Grace
	}
	return sum
}

// group are the pods that end at the same time.
type group struct {
	grace time.Duration
	pods  []*corev1.Pod
}

// groups divides the pods, in the order in which they end. A pod whose priority is below
// all periods is in the first. Groups without pods are left out.
func (p Periods) groups(pods []*corev1.Pod) []group {
	sorted := slices.SortedFunc(slices.Values(p), func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
	all := make([]group, len(sorted))
	for i := range sorted {
		all[i].grace = sorted[i].Grace
	}
	for _, pod := range pods {
		at := 0
		for i := range sorted {
			if priority(pod) >= sorted[i].Priority {
				at = i
			}
		}
		all[at].pods = append(all[at].pods, pod)
	}
	return slices.DeleteFunc(all, func(g group) bool { return len(g.pods) == 0 })
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
