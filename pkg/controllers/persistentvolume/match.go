package persistentvolume

import (
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/volumebinding"
)

// match returns the volume that a claim is to be bound to: one that is reserved for it,
// else the smallest free one that fits; nil if there is none. The volumes are those of the
// claim's class and those reserved for it.
func match(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume) *corev1.PersistentVolume {
	var best *corev1.PersistentVolume
	for _, v := range volumes {
		if v.DeletionTimestamp == nil && volumebinding.Reserved(v, claim) {
			return v
		}
		if volumebinding.Fits(v, claim) && (best == nil || volumebinding.BySize(v, best) < 0) {
			best = v
		}
	}
	return best
}
