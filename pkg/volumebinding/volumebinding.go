// Package volumebinding holds the rules about claims, volumes and storage classes that
// the controller manager, the scheduler and the kubelet share.
package volumebinding

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Annotations of claims and volumes.
const (
	BindCompleted     = "pv.kubernetes.io/bind-completed"               // claim: the binding was completed
	BoundByController = "pv.kubernetes.io/bound-by-controller"          // claim and volume: a controller chose the other one
	ProvisionedBy     = "pv.kubernetes.io/provisioned-by"               // volume: its provisioner
	Provisioner       = "volume.kubernetes.io/storage-provisioner"      // claim: the provisioner to make a volume
	BetaProvisioner   = "volume.beta.kubernetes.io/storage-provisioner" // the same, for older provisioners
	SelectedNode      = "volume.kubernetes.io/selected-node"            // claim: the node of the first pod, set by the scheduler
	NoProvisioner     = "kubernetes.io/no-provisioner"                  // provisioner of classes without dynamic provisioning
)

// ClassOf returns the name of a claim's class, "" if it has none.
func ClassOf(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	return valueOr(claim.Spec.StorageClassName, "")
}

// ClaimName returns the name of the claim that a volume of a pod uses, "" if it uses none.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	}
	return ""
}

// CheckOwner returns an error if v is an ephemeral volume and its claim was not made for
// the pod.
func CheckOwner(pod *corev1.Pod, v *corev1.Volume, claim *corev1.PersistentVolumeClaim) error {
	if v.Ephemeral == nil {
		return nil
	}
	return ephemeral.VolumeIsForPod(pod, claim)
}

// Delayed reports whether volumes of the class are bound when a pod uses the claim. class
// may be nil.
func Delayed(class *storagev1.StorageClass) bool {
	return class != nil && valueOr(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
}

// Reserved reports whether a volume refers to a claim, by its name and, once they are
// bound, by its UID.
func Reserved(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID)
}

// Reference returns the reference of a volume to a claim.
func Reference(claim *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}
}

// Bound reports whether the binding of a claim was completed.
func Bound(claim *corev1.PersistentVolumeClaim) bool {
	_, done := claim.Annotations[BindCompleted]
	return done && claim.Spec.VolumeName != ""
}

// WithoutResize returns the conditions of a claim that are not about an expansion.
func WithoutResize(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	about := []corev1.PersistentVolumeClaimConditionType{
		corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
	}
	return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.PersistentVolumeClaimCondition) bool { return slices.Contains(about, c.Type) })
}
