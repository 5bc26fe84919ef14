package node

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/intree"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

// Volumes is the watch cache follower of persistent volumes for a Graph.
type Volumes struct{ *Graph }

// Replace replaces all volumes.
func (v Volumes) Replace(all []scheme.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.volumes)
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
	info := volume{home: volumebinding.Home(pv)}
	if c := pv.Spec.ClaimRef; c != nil {
		info.claim = ref{"persistentvolumeclaims", c.Namespace, c.Name}
	}
	if c := intree.Source(pv); c != nil {
		for _, s := range []*corev1.SecretReference{c.NodeStageSecretRef, c.NodePublishSecretRef, c.NodeExpandSecretRef} {
			if s != nil {
				info.secrets = append(info.secrets, ref{"secrets", s.Namespace, s.Name})
			}
		}
	}
	v.volumes[pv.Name] = info
}

// Remove removes a volume, if it is present.
func (v Volumes) Remove(_, name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.volumes, name)
}

// Attachments is the watch cache follower of VolumeAttachments for a Graph.
type Attachments struct{ *Graph }

// Replace replaces all attachments.
func (a Attachments) Replace(all []scheme.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.attached)
	for _, obj := range all {
		a.attached[obj.GetName()] = obj.(*storagev1.VolumeAttachment).Spec.NodeName
	}
}

// Put adds or updates an attachment.
func (a Attachments) Put(obj scheme.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attached[obj.GetName()] = obj.(*storagev1.VolumeAttachment).Spec.NodeName
}

// Remove removes an attachment, if it is present.
func (a Attachments) Remove(_, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.attached, name)
}
