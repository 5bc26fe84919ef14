package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/conditions"
	"podium/pkg/controller/ownership"
	"podium/pkg/controller/pods"
)

// burst is the maximum number of pods that one reconcile creates or deletes.
const burst = 500

// plan is the actions of one reconcile.
type plan struct {
	Adopt, Release []*corev1.Pod
	Create         int
	Delete         []*corev1.Pod
}

// decide compares the desired number of pods with the actual pods. siblings returns, per node,
// the number of active pods of all replica sets of the same owner; decide calls it only to
// choose the pods to delete.
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
		p.Delete = pods.LeastUseful(active, min(surplus, burst), siblings(), now)
	}
	return p
}

// status counts the pods. failure is the reason why creating or deleting pods failed, or nil.
// recount is the time until a pod becomes available without any further change; 0: never.
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
	s.Conditions = withFailure(rs.Status.Conditions, failure, now)
	return s, recount
}

// failure is the reason why a replica set has the wrong number of pods.
type failure struct {
	Reason  string
	Message string
}

// withFailure returns have with the condition ReplicaFailure for f. An existing condition is
// kept, since its message would change with every attempt.
func withFailure(have []appsv1.ReplicaSetCondition, f *failure, now time.Time) []appsv1.ReplicaSetCondition {
	have = slices.Clone(have)
	switch {
	case f == nil:
		return conditions.Remove(have, appsv1.ReplicaSetReplicaFailure)
	case conditions.Find(have, appsv1.ReplicaSetReplicaFailure) != nil:
		return have
	}
	return append(have, appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.Time{Time: now}, Reason: f.Reason, Message: f.Message,
	})
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
