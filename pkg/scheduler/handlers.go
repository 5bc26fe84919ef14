package scheduler

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourcehelper "k8s.io/component-helpers/resource"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheme"
)

// unfinished selects the pods that use, or will use, a node.
const unfinished = "status.phase!=Succeeded,status.phase!=Failed"

// strip drops the fields of a pod that nothing reads. Extenders may read all of the others.
func (s *scheduler) strip(obj scheme.Object) {
	if len(s.extenders) > 0 {
		obj.SetManagedFields(nil)
		return
	}
	strip(obj)
}

// strip drops the fields that no plugin reads: most of an object.
func strip(obj scheme.Object) {
	obj.SetManagedFields(nil)
	switch o := obj.(type) {
	case *corev1.Pod:
		stripPod(o)
	case *appsv1.ReplicaSet:
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *appsv1.StatefulSet:
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *corev1.ReplicationController:
		o.Spec.Template = nil
	}
}

func stripPod(pod *corev1.Pod) {
	pod.Annotations = nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			*c = corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, Ports: c.Ports, RestartPolicy: c.RestartPolicy}
		}
	}
	pod.Spec.Volumes = placed(pod.Spec.Volumes)
	resized := resizing(pod)
	s := &pod.Status
	s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses = resourcesOnly(s.ContainerStatuses, resized), resourcesOnly(s.InitContainerStatuses, resized), nil
}

// resizing reports whether a container of the pod has other requests than its spec, or
// is to get others. Then the pod counts with the larger ones.
func resizing(pod *corev1.Pod) bool {
	specs := map[string]corev1.ResourceList{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			specs[list[i].Name] = list[i].Resources.Requests
		}
	}
	differs := func(s corev1.ContainerStatus) bool {
		wants := specs[s.Name]
		return s.Resources != nil && (!equality.Semantic.DeepEqual(s.Resources.Requests, wants) || !equality.Semantic.DeepEqual(s.AllocatedResources, wants))
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, differs) || slices.ContainsFunc(pod.Status.InitContainerStatuses, differs)
}

// resourcesOnly returns the statuses without all but names and resources; nil unless
// keep is set.
func resourcesOnly(list []corev1.ContainerStatus, keep bool) []corev1.ContainerStatus {
	if !keep {
		return nil
	}
	var out []corev1.ContainerStatus
	for _, s := range list {
		out = append(out, corev1.ContainerStatus{Name: s.Name, Resources: s.Resources, AllocatedResources: s.AllocatedResources})
	}
	return out
}

// placed returns the volumes on which the choice of a node depends.
func placed(volumes []corev1.Volume) (out []corev1.Volume) {
	for _, v := range volumes {
		switch {
		case v.PersistentVolumeClaim != nil, v.ISCSI != nil:
			out = append(out, v)
		case v.Ephemeral != nil:
			v.Ephemeral = &corev1.EphemeralVolumeSource{} // the claim follows from the names
			out = append(out, v)
		}
	}
	return out
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// onPod updates the snapshot and the queue. A pod is on a node, in the queue, or in neither.
func (s *scheduler) onPod(old, new *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case new == nil:
		s.gone(old)
	case finished(new):
		s.gone(new)
	case new.Spec.NodeName != "":
		s.notPending(new)
		s.snap.Assign(new)
		if e := podEvent(old, new); e != 0 {
			s.queue.Wake(e)
		}
	case s.ours(new):
		s.nominated(old, new)
		s.queue.Add(new, old != nil && needsChanged(old, new))
	default:
		s.notPending(new)
		if s.responsible(new) {
			s.queue.Gate(new.UID)
		}
	}
}

// notPending ends what the scheduler does to find a node for the pod.
func (s *scheduler) notPending(p *corev1.Pod) {
	s.queue.Remove(p.UID)
	s.dropNomination(p.UID)
	s.endWait(p.UID)
}

func (s *scheduler) gone(p *corev1.Pod) {
	s.notPending(p)
	if s.snap.Remove(p.UID) {
		s.queue.Wake(framework.PodGone)
	}
}

// podEvent returns the changes of a pod on a node that plugins depend on.
func podEvent(old, new *corev1.Pod) framework.Event {
	if old == nil || old.Spec.NodeName == "" {
		return framework.PodAdded
	}
	var e framework.Event
	if old.Generation != new.Generation || !equality.Semantic.DeepEqual(old.Status.ContainerStatuses, new.Status.ContainerStatuses) ||
		resourcehelper.IsPodResizeInfeasible(old) != resourcehelper.IsPodResizeInfeasible(new) {
		e |= framework.PodGone // its requests may be lower
	}
	if !maps.Equal(old.Labels, new.Labels) || (old.DeletionTimestamp == nil) != (new.DeletionTimestamp == nil) {
		e |= framework.PodLabels
	}
	return e
}

// ours reports whether this scheduler is to find a node for the pod.
func (s *scheduler) ours(p *corev1.Pod) bool {
	return s.responsible(p) && len(p.Spec.SchedulingGates) == 0
}

// responsible reports whether this scheduler is responsible for the pod, also while it is gated.
func (s *scheduler) responsible(p *corev1.Pod) bool {
	return s.of(p) != nil && p.DeletionTimestamp == nil
}

// needsChanged reports whether a pending pod changed in a way that may let it fit. Its labels may be what
// other pods repel.
func needsChanged(old, new *corev1.Pod) bool {
	return !maps.Equal(old.Labels, new.Labels) || !equality.Semantic.DeepEqual(old.Spec, new.Spec) ||
		!equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, new.Status.ResourceClaimStatuses)
}

func (s *scheduler) onNode(old, new *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if new == nil {
		s.snap.RemoveNode(old.Name)
		s.queue.Wake(framework.NodeGone)
		return
	}
	e := nodeEvent(old, new)
	if e == 0 && equality.Semantic.DeepEqual(old.Status.Images, new.Status.Images) {
		return // a heartbeat
	}
	s.snap.SetNode(new)
	if e != 0 {
		s.queue.Wake(e)
	}
}

// nodeEvent returns the changes of a node that filters depend on.
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
