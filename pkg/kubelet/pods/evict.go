package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/podspec"
)

// reasonEvicted is the reason of evicted pods and of their events; clients
// match it.
const reasonEvicted = "Evicted"

// measurePeriod is the interval between measurements of pods and of the node:
// upstream's housekeeping interval.
const measurePeriod = 10 * time.Second

// evictionGracePeriod is the grace period of an evicted pod: upstream's for immediate
// evictions.
const evictionGracePeriod = time.Second

// criticalPriority is the lowest priority of system-cluster-critical and
// system-node-critical pods.
const criticalPriority = 2000000000

// An eviction describes why a pod is evicted.
type eviction struct {
	signal    string // the label of the metric kubelet_evictions
	message   string
	condition *corev1.PodCondition // for the pod's status; may be nil
	grace     *time.Duration       // the most that its containers get to stop; nil: evictionGracePeriod
}

// evict fails the pod. As upstream, it never evicts a critical pod. Only the
// worker's goroutine may call it.
func (w *worker) evict(e eviction) {
	if w.verdict != nil || critical(w.pod) || w.state != starting && w.state != running {
		return
	}
	grace := evictionGracePeriod
	if e.grace != nil {
		grace = *e.grace
	}
	w.verdict = &verdict{phase: corev1.PodFailed, reason: reasonEvicted, message: e.message, grace: &grace, condition: e.condition}
	w.log.Warn("pod evicted", "signal", e.signal, "message", e.message)
	w.event(corev1.EventTypeWarning, reasonEvicted, e.message)
	w.m.cfg.Metrics.evicted(e.signal)
}

// evicted reports whether the pod was evicted, also by an earlier kubelet. Only the worker's
// goroutine may call it.
func (w *worker) evicted() bool {
	s := w.m.writer.latest(w.pod).Status
	return s.Phase == corev1.PodFailed && s.Reason == reasonEvicted
}

// critical reports whether the pod is needed to run the node or the cluster, as upstream
// does: every static pod is.
func critical(pod *corev1.Pod) bool {
	return podspec.Static(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}
