package statefulset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// status counts the pods of the set. recount is the time until a pod becomes available
// without any further change; 0: never.
func status(s *state, pods []*corev1.Pod, collisions *int32) (status appsv1.StatefulSetStatus, recount time.Duration) {
	status = appsv1.StatefulSetStatus{
		ObservedGeneration: s.set.Generation, Conditions: s.set.Status.Conditions,
		CurrentRevision: s.current, UpdateRevision: s.update,
		CollisionCount: new(ptr.Deref(collisions, 0)), Replicas: int32(len(pods)),
	}
	for _, pod := range pods {
		if ready(pod) {
			status.ReadyReplicas++
		}
		if pod.DeletionTimestamp == nil {
			if revisionOf(pod) == s.current {
				status.CurrentReplicas++
			}
			if revisionOf(pod) == s.update {
				status.UpdatedReplicas++
			}
		}
		ok, wait := availability(s.set, pod, s.now)
		if ok {
			status.AvailableReplicas++
		}
		recount = sooner(recount, wait)
	}
	if n := int32(len(s.replicas)); !s.onDelete() && status.UpdatedReplicas == n && status.Replicas == n && status.ReadyReplicas == n {
		status.CurrentRevision, status.CurrentReplicas = s.update, status.UpdatedReplicas // the update is complete
	}
	return status, recount
}

// sooner returns the shorter delay; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}
