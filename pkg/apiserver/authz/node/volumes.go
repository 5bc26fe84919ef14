package node

import (
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheme"
)

// Volumes is the watch cache follower of persistent volumes for a Graph.
type Volumes struct{ *Graph }

// Replace replaces all volumes.
func (v Volumes) Replace(all []scheme.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.bound)
	for _, obj := range all {
		v.putLocked(obj.(*corev1.PersistentVolume))
	}
}

// Put adds or updates a volume.
func (v Volumes) Put(obj scheme.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.putLocked(obj.(*corev1.PersistentVolume))
}

func (v Volumes) putLocked(pv *corev1.PersistentVolume) {
	delete(v.bound, pv.Name)
	if claim := pv.Spec.ClaimRef; claim != nil {
		v.bound[pv.Name] = ref{"persistentvolumeclaims", claim.Namespace, claim.Name}
	}
}

// Remove removes a volume, if it is present.
func (v Volumes) Remove(_, name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.bound, name)
}
