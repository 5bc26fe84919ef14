package noderestriction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
	"podium/pkg/volumebinding"
)

// csiNode admits writes of the node's own CSINode.
func (r *rules) csiNode() error {
	if r.Name != r.node {
		return r.no("can only access CSINode with the same name as the requesting node")
	}
	return nil
}

// claim admits updates of a claim's status that say how large the node has made its
// volume.
func (r *rules) claim() error {
	if r.Operation != admission.Update || r.Subresource != "status" {
		return r.no("may only update PVC status")
	}
	old, next := r.Old.(*corev1.PersistentVolumeClaim).DeepCopy(), r.Object.(*corev1.PersistentVolumeClaim).DeepCopy()
	for _, c := range []*corev1.PersistentVolumeClaim{old, next} {
		c.ManagedFields, c.ResourceVersion = nil, ""
		c.Status.Capacity, c.Status.Conditions, c.Status.AllocatedResourceStatuses, c.Status.AllocatedResources = nil, nil, nil, nil
	}
	if !apiequality.Semantic.DeepEqual(old, next) {
		return r.no("node %q is not allowed to update fields other than status.quantity and status.conditions", r.node)
	}
	return nil
}

// driverRequests reports whether a CSI driver of one of the pod's volumes requests tokens
// for an audience.
func (r *rules) driverRequests(pod *corev1.Pod, audience string) (bool, error) {
	for i := range pod.Spec.Volumes {
		name, err := r.driverOf(pod, &pod.Spec.Volumes[i])
		if err != nil {
			return false, err
		}
		if name == "" {
			continue
		}
		obj, err := r.Objects.Get(r.ctx, storagev1.SchemeGroupVersion.WithResource("csidrivers"), "", name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, r.no("%v", err)
		}
		requests := obj.(*storagev1.CSIDriver).Spec.TokenRequests
		if slices.ContainsFunc(requests, func(t storagev1.TokenRequest) bool { return t.Audience == audience }) {
			return true, nil
		}
	}
	return false, nil
}

// driverOf returns the CSI driver of a volume, "" if it has none.
func (r *rules) driverOf(pod *corev1.Pod, v *corev1.Volume) (string, error) {
	if v.CSI != nil {
		return v.CSI.Driver, nil
	}
	name := volumebinding.ClaimName(pod, v)
	if name == "" {
		return "", nil
	}
	claim, err := r.Objects.Get(r.ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), pod.Namespace, name)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", r.no("%v", err)
	}
	volume := claim.(*corev1.PersistentVolumeClaim).Spec.VolumeName
	if volume == "" {
		return "", nil
	}
	obj, err := r.Objects.Get(r.ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumes"), "", volume)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", r.no("%v", err)
	}
	if pv := obj.(*corev1.PersistentVolume); pv.Spec.CSI != nil {
		return pv.Spec.CSI.Driver, nil
	}
	return "", nil
}
