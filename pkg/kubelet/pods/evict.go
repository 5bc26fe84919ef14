package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// reasonEvicted is the reason of evicted pods and of their events; clients
// match it.
const reasonEvicted = "Evicted"

// measurePeriod is how often pods and the node are measured: upstream's
// housekeeping interval.
const measurePeriod = 10 * time.Second

// evictionGrace is how long the containers of an evicted pod get between
// SIGTERM and SIGKILL; upstream's, for what must be relieved at once.
const evictionGrace = time.Second

// criticalPriority is the least priority of system-cluster-critical and
// system-node-critical pods.
const criticalPriority = 2000000000

// An eviction says why a pod is evicted.
type eviction struct {
	signal    string // the label of the metric kubelet_evictions
	message   string
	condition *corev1.PodCondition // for the pod's status; nil: none
}

// evict ends the pod. Upstream never evicts a critical pod, and neither does
// this.
func (w *worker) evict(e eviction) {
	if w.verdict != nil || critical(w.pod) || w.state != starting && w.state != running {
		return
	}
	w.verdict = &verdict{phase: corev1.PodFailed, reason: reasonEvicted, message: e.message, evicted: true, condition: e.condition}
	w.log.Warn("pod evicted", "signal", e.signal, "message", e.message)
	w.event(corev1.EventTypeWarning, reasonEvicted, e.message)
	w.m.cfg.Metrics.evicted(e.signal)
}

func critical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}
