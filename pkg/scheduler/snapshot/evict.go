package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/conditions"
)

// Evict marks a pod on a node as terminating before its deletion reaches the API, so that
// nothing evicts it, or other pods in its place, again. undo ends that, if the pod has not been
// deleted since.
func (s *Snapshot) Evict(uid types.UID) (undo func()) {
	s.leaving[uid] = true
	s.replace(uid, terminating)
	return func() {
		if !s.leaving[uid] {
			return
		}
		delete(s.leaving, uid)
		s.replace(uid, func(p *corev1.Pod) *corev1.Pod {
			alive := *p
			alive.DeletionTimestamp = nil
			return &alive
		})
	}
}

// replace replaces a pod on a node by another version of it.
func (s *Snapshot) replace(uid types.UID, change func(*corev1.Pod) *corev1.Pod) {
	if p, ok := s.assigned[uid]; ok {
		node := s.names[p.row]
		s.take(uid)
		s.place(NewPod(change(p.pod.Pod)), node, p.assumed)
	}
}

// terminating returns a copy of the pod with a deletion timestamp.
func terminating(p *corev1.Pod) *corev1.Pod {
	gone := *p
	gone.DeletionTimestamp = &metav1.Time{}
	return &gone
}

// Preempted reports whether a pod terminates because a scheduler has evicted it for another pod.
func (s *Snapshot) Preempted(p *Pod) bool {
	if p.DeletionTimestamp == nil {
		return false
	}
	c := conditions.Find(p.Status.Conditions, corev1.DisruptionTarget)
	return s.leaving[p.UID] || c != nil && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
}
