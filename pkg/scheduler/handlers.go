package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podium/pkg/scheduler/framework"

	"podium/pkg/scheme"
)

// unfinished selects the pods that use, or will use, a node.
const unfinished = "status.phase!=Succeeded,status.phase!=Failed"

// strip drops what the scheduler never reads: it is most of an object.
func strip(obj scheme.Object) {
	obj.SetManagedFields(nil)
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	pod.Annotations = nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			*c = corev1.Container{Name: c.Name, Resources: c.Resources, Ports: c.Ports, RestartPolicy: c.RestartPolicy}
		}
	}
	pod.Spec.Volumes = nil
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = nil, nil
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// onPod brings the snapshot and the queue up to date. A pod is on a node, in
// the queue, or neither.
func (s *scheduler) onPod(old, new *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case new == nil:
		s.gone(old)
	case finished(new):
		s.gone(new)
	case new.Spec.NodeName != "":
		s.snap.Assign(new)
		s.queue.Remove(new.UID)
		if old != nil && old.Spec.NodeName != "" && old.Generation != new.Generation {
			s.queue.Wake(framework.PodGone) // it may have become smaller
		}
	case s.ours(new):
		s.queue.Add(new, old != nil && specChanged(old, new))
	default:
		s.queue.Remove(new.UID)
	}
}

func (s *scheduler) gone(p *corev1.Pod) {
	s.queue.Remove(p.UID)
	if s.snap.Remove(p.UID) {
		s.queue.Wake(framework.PodGone)
	}
}

// ours are the pods that we should find a node for.
func (s *scheduler) ours(p *corev1.Pod) bool {
	return p.Spec.SchedulerName == s.cfg.SchedulerName && p.DeletionTimestamp == nil && len(p.Spec.SchedulingGates) == 0
}

func specChanged(old, new *corev1.Pod) bool {
	return !equality.Semantic.DeepEqual(old.Spec, new.Spec)
}

func (s *scheduler) onNode(old, new *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if new == nil {
		s.snap.RemoveNode(old.Name)
		return
	}
	e := nodeEvent(old, new)
	if e == 0 {
		return // a heartbeat
	}
	s.snap.SetNode(new)
	s.queue.Wake(e)
}

// nodeEvent says what is new on a node, of what plugins look at.
func nodeEvent(old, new *corev1.Node) framework.Event {
	if old == nil {
		return framework.NodeAdded
	}
	var e framework.Event
	if !equality.Semantic.DeepEqual(old.Status.Allocatable, new.Status.Allocatable) {
		e |= framework.NodeAllocatable
	}
	if !equality.Semantic.DeepEqual(old.Labels, new.Labels) {
		e |= framework.NodeLabels
	}
	if !slices.EqualFunc(old.Spec.Taints, new.Spec.Taints, func(a, b corev1.Taint) bool {
		return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
	}) {
		e |= framework.NodeTaints
	}
	if old.Spec.Unschedulable != new.Spec.Unschedulable {
		e |= framework.NodeSchedulable
	}
	return e
}
