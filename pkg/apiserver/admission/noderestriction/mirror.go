package noderestriction

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/podspec"
)

// mirrorPod checks the creation of a mirror pod, which represents a static pod
// of the node: it must belong to the node and must not refer to objects of the
// API.
func (r *rules) mirrorPod(pod *corev1.Pod) error {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return r.no("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, r.node)
	}
	if pod.Spec.NodeName != r.node {
		return r.no("node %q can only create pods with spec.nodeName set to itself", r.node)
	}
	if err := r.owned(pod); err != nil {
		return err
	}
	if what := podspec.RefersTo(&pod.Spec); what != "" {
		return r.no("node %q can not create pods that reference %s", r.node, what)
	}
	return nil
}

// owned requires that the node is the pod's only owner and its controller.
func (r *rules) owned(pod *corev1.Pod) error {
	if len(pod.OwnerReferences) > 1 {
		return r.no("node %q can only create pods with a single owner reference set to itself", r.node)
	}
	if len(pod.OwnerReferences) == 0 {
		return r.no("node %q can only create pods with an owner reference set to itself", r.node)
	}
	owner := pod.OwnerReferences[0]
	if owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != r.node {
		return r.no("node %q can only create pods with an owner reference set to itself", r.node)
	}
	if owner.Controller == nil || !*owner.Controller {
		return r.no("node %q can only create pods with a controller owner reference set to itself", r.node)
	}
	if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return r.no("node %q must not set blockOwnerDeletion on an owner reference", r.node)
	}
	node, err := r.Objects.Get(r.ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", r.node)
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		return r.no("error looking up node %s to verify uid: %v", r.node, err)
	case owner.UID != node.GetUID():
		return r.no("node %s UID mismatch: expected %s got %s", r.node, owner.UID, node.GetUID())
	}
	return nil
}
