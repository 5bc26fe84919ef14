package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Terminal says that the pod's containers have ended for good.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Active says that the pod has not ended and nobody asked for its end.
func Active(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp == nil }

// Terminating says that somebody asked for the pod's end and it has not come yet.
func Terminating(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp != nil }

// Condition finds a condition, nil if the pod has none of that type.
func Condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			return c
		}
	}
	return nil
}

// Ready says that the pod has the condition Ready.
func Ready(p *corev1.Pod) bool {
	c := Condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Available says that the pod has been ready for minReady; if it only has to
// wait for that, wait is how long.
func Available(p *corev1.Pod, minReady time.Duration, now time.Time) (ok bool, wait time.Duration) {
	if !Ready(p) {
		return false, 0
	}
	if minReady == 0 {
		return true, 0
	}
	since := Condition(p, corev1.PodReady).LastTransitionTime
	if since.IsZero() {
		return false, 0
	}
	if wait := since.Add(minReady).Sub(now); wait > 0 {
		return false, wait
	}
	return true, 0
}
