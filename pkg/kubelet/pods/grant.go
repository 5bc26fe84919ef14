package pods

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/resources"
)

// A pendingResize is a resize that the node cannot carry out, or not now.
type pendingResize struct {
	reason  string // Deferred or Infeasible
	message string
}

// deferral is a resize that waits for resources.
type deferral struct {
	pod   *corev1.Pod // with the resources that it wants
	since time.Time
}

// resize decides whether the node can give a pod other resources. If so, it counts
// them and returns nil. A resize that has to wait is decided again when resources
// become free: the pod's worker is woken.
func (m *Manager) resize(pod *corev1.Pod) *pendingResize {
	node := m.cfg.Node()
	if node == nil {
		return &pendingResize{corev1.PodReasonDeferred, "the node is not registered"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.resizableLocked(pod, node); p != nil {
		delete(m.deferred, pod.UID)
		if p.reason == corev1.PodReasonDeferred {
			m.deferred[pod.UID] = deferral{pod, time.Now()}
		}
		return p
	}
	m.countLocked(pod)
	m.weighLocked()
	m.retryDeferredLocked(node)
	return nil
}

// othersLocked returns the pods that count against the node besides one: after a
// restart also those that are not counted yet. m.mu is held.
func (m *Manager) othersLocked(except types.UID) []*corev1.Pod {
	var out []*corev1.Pod
	for uid, p := range m.counted {
		if uid != except {
			out = append(out, p)
		}
	}
	for uid, w := range m.workers {
		w.mu.Lock()
		p := w.desired
		w.mu.Unlock()
		if uid != except && !m.decided[uid] && p.Status.StartTime != nil && !finalPhase(p.Status.Phase) {
			out = append(out, p)
		}
	}
	return out
}

// settled says that a pod wants no other resources than it has.
func (m *Manager) settled(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.deferred, uid)
}

// countLocked counts a pod with its resources against the node. m.mu is held.
func (m *Manager) countLocked(pod *corev1.Pod) {
	m.counted[pod.UID] = pod
	delete(m.deferred, pod.UID)
}

// retryDeferredLocked accepts the deferred resizes that fit by now, those of pods
// with a higher priority first. m.mu is held.
func (m *Manager) retryDeferredLocked(node *corev1.Node) {
	var all []deferral
	for _, d := range m.deferred {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b deferral) int {
		return cmp.Or(cmp.Compare(priority(b.pod), priority(a.pod)), cmp.Compare(qosRank(a.pod), qosRank(b.pod)), a.since.Compare(b.since))
	})
	for _, d := range all {
		if w := m.workers[d.pod.UID]; w != nil && m.resizableLocked(d.pod, node) == nil {
			m.countLocked(d.pod) // its worker asks again, and gets it
			w.wake()
		}
	}
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func qosRank(pod *corev1.Pod) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}, resources.QOS(pod))
}

// resizableLocked returns why a pod that is counted cannot have other resources; nil:
// it can. It checks only resources of which the pod wants more. m.mu is held.
func (m *Manager) resizableLocked(pod *corev1.Pod, node *corev1.Node) *pendingResize {
	if has := m.counted[pod.UID]; has != nil && m.cfg.Placement != nil {
		if why := m.cfg.Placement.Infeasible(has, pod); why != "" {
			return &pendingResize{corev1.PodReasonInfeasible, why}
		}
	}
	wants := resources.Requests(pod)
	if has := m.counted[pod.UID]; has != nil {
		for name, q := range resources.Requests(has) {
			if want, ok := wants[name]; ok && want.Cmp(q) <= 0 {
				delete(wants, name)
			}
		}
	}
	others := m.othersLocked(pod.UID)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		want, capacity := amount(wants, name), amount(node.Status.Allocatable, name)
		if want > capacity {
			return &pendingResize{corev1.PodReasonInfeasible, fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, want, capacity)}
		}
	}
	if r := room(wants, others, node.Status.Allocatable); r != nil {
		return &pendingResize{corev1.PodReasonDeferred, r.message}
	}
	return nil
}
