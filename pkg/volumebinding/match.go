package volumebinding

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Fits reports whether a volume is free and satisfies a claim.
func Fits(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return v.DeletionTimestamp == nil && v.Spec.ClaimRef == nil && v.Status.Phase == corev1.VolumeAvailable &&
		Mismatch(v, claim) == "" && selected(v, claim)
}

// BySize orders volumes by their capacity, then by name.
func BySize(a, b *corev1.PersistentVolume) int {
	x, y := a.Spec.Capacity[corev1.ResourceStorage], b.Spec.Capacity[corev1.ResourceStorage]
	return cmp.Or(x.Cmp(y), cmp.Compare(a.Name, b.Name))
}

// selected reports whether the claim's selector matches the labels of a volume.
func selected(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	if claim.Spec.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(claim.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(v.Labels))
}

// Mismatch returns why a volume does not satisfy a claim, "" if it does.
func Mismatch(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) string {
	requested, capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage], v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case capacity.Cmp(requested) < 0:
		return "requested PV is too small"
	case v.Spec.StorageClassName != ClassOf(claim):
		return "storageClassName does not match"
	case valueOr(v.Spec.VolumeAttributesClassName, "") != valueOr(claim.Spec.VolumeAttributesClassName, ""):
		return "volumeAttributesClassName does not match"
	case valueOr(v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != valueOr(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem):
		return "incompatible volumeMode"
	case slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool { return !slices.Contains(v.Spec.AccessModes, m) }):
		return "incompatible accessMode"
	}
	return ""
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
