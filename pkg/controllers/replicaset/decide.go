package replicaset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/controllers/ownership"
	"podium/pkg/controllers/pods"
)

// burst bounds how many pods one reconcile creates or deletes; the next goes on.
const burst = 500

// plan is what one reconcile does.
type plan struct {
	Adopt, Release []*corev1.Pod
	Create         int
	Delete         []*corev1.Pod
}

// decide compares what rs asks for with its pods. siblings counts, per node,
// the active pods of all replica sets of the same owner; it is only called
// when pods have to go.
func decide(rs *appsv1.ReplicaSet, selector labels.Selector, owned, orphans []*corev1.Pod, siblings func() map[string]int, now time.Time) plan {
	claims := ownership.Claim(rs, selector, owned, orphans)
	p := plan{Release: claims.Release}
	for _, pod := range claims.Adopt {
		if pods.Active(pod) {
			p.Adopt = append(p.Adopt, pod)
		}
	}
	if rs.DeletionTimestamp != nil {
		return p
	}
	active := keep(claims.Owned, pods.Active)
	active = append(active, p.Adopt...)
	surplus := len(active) - int(*rs.Spec.Replicas)
	switch {
	case surplus < 0:
		p.Create = min(-surplus, burst)
	case surplus > 0:
		p.Delete = leastUseful(active, min(surplus, burst), siblings(), now)
	}
	return p
}

// status counts the pods. failure is what went wrong with creating (or
// deleting) them, nil if nothing did. recount says when a pod becomes
// available without any further change.
func status(rs *appsv1.ReplicaSet, owned []*corev1.Pod, failure *failure, now time.Time) (s appsv1.ReplicaSetStatus, recount time.Duration) {
	s = *rs.Status.DeepCopy()
	s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = 0, 0, 0, 0
	s.ObservedGeneration = rs.Generation
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	minReady := time.Duration(rs.Spec.MinReadySeconds) * time.Second
	terminating := int32(0)
	for _, pod := range owned {
		if pods.Terminating(pod) {
			terminating++
		}
		if !pods.Active(pod) {
			continue
		}
		s.Replicas++
		if template.Matches(labels.Set(pod.Labels)) {
			s.FullyLabeledReplicas++
		}
		if !pods.Ready(pod) {
			continue
		}
		s.ReadyReplicas++
		ok, wait := pods.Available(pod, minReady, now)
		if ok {
			s.AvailableReplicas++
		} else if wait > 0 && (recount == 0 || wait < recount) {
			recount = wait
		}
	}
	s.TerminatingReplicas = &terminating
	s.Conditions = conditions(rs.Status.Conditions, failure, now)
	return s, recount
}

// failure is why a replica set has the wrong number of pods.
type failure struct {
	Reason  string
	Message string
}

// conditions are have, with ReplicaFailure as failure says. One that stands is
// not touched: its message would change with every attempt.
func conditions(have []appsv1.ReplicaSetCondition, f *failure, now time.Time) []appsv1.ReplicaSetCondition {
	var out []appsv1.ReplicaSetCondition
	stands := false
	for _, c := range have {
		if c.Type == appsv1.ReplicaSetReplicaFailure {
			if f == nil {
				continue
			}
			stands = true
		}
		out = append(out, c)
	}
	if f != nil && !stands {
		out = append(out, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1Time(now), Reason: f.Reason, Message: f.Message,
		})
	}
	return out
}

func keep(list []*corev1.Pod, f func(*corev1.Pod) bool) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range list {
		if f(p) {
			out = append(out, p)
		}
	}
	return out
}
