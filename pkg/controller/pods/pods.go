package pods

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/conditions"
)

// Terminal reports whether the pod has succeeded or failed.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// OldestFirst compares two pods by their age, then by name.
func OldestFirst(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Active reports whether the pod is neither terminal nor deleted.
func Active(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp == nil }

// Terminating reports whether the pod is deleted and not terminal yet.
func Terminating(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp != nil }

// Ready reports whether the pod's condition Ready is true.
func Ready(p *corev1.Pod) bool { return conditions.IsTrue(p.Status.Conditions, corev1.PodReady) }

// Available reports whether the pod has been ready for minReady. If the pod is ready and
// not yet available, wait is the remaining time.
func Available(p *corev1.Pod, minReady time.Duration, now time.Time) (ok bool, wait time.Duration) {
	if !Ready(p) {
		return false, 0
	}
	if minReady == 0 {
		return true, 0
	}
	since := conditions.Find(p.Status.Conditions, corev1.PodReady).LastTransitionTime
	if since.IsZero() {
		return false, 0
	}
	if wait := since.Add(minReady).Sub(now); wait > 0 {
		return false, wait
	}
	return true, 0
}

// DisruptionTarget returns the conditions of a status patch which says that the pod is
// about to be deleted, and why.
func DisruptionTarget(reason, message string, now time.Time) []map[string]any {
	return []map[string]any{{
		"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue, "reason": reason, "message": message,
		"lastTransitionTime": now.UTC().Format(time.RFC3339),
	}}
}
