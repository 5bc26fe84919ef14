package attachdetach

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/attachment"
	"podium/pkg/controller/loop"
	"podium/pkg/intree"
)

// uniqueOf returns the name of a persistent volume in a node's status; "" if it is of no
// CSI driver.
func uniqueOf(pv *corev1.PersistentVolume) corev1.UniqueVolumeName {
	c := intree.Source(pv)
	if c == nil {
		return ""
	}
	return attachment.Volume(c.Driver, c.VolumeHandle)
}

// diskOf identifies what is attached. Several persistent volumes may be of one disk.
func diskOf(unique corev1.UniqueVolumeName) string {
	driver, handle, ok := attachment.Parse(unique)
	if !ok {
		return ""
	}
	return driver + "^" + intree.Disk(driver, handle)
}

// disksOf returns the disks of volumes, each once.
func disksOf(volumes ...corev1.UniqueVolumeName) (out []string) {
	for _, unique := range volumes {
		if disk := diskOf(unique); disk != "" && !slices.Contains(out, disk) {
			out = append(out, disk)
		}
	}
	return out
}

// elsewhere returns the attachments of a volume's disk to other nodes, also those whose
// persistent volume is gone. One may be listed twice.
func (r *reconciler) elsewhere(unique corev1.UniqueVolumeName, node string) []*storagev1.VolumeAttachment {
	disk := diskOf(unique)
	var shown []*storagev1.VolumeAttachment
	for _, pv := range r.volumesOf(disk) {
		shown = append(shown, r.attachedOf(pv.Name)...)
	}
	for _, n := range r.nodesWith(disk) {
		shown = append(shown, r.attachedTo(n.Name)...)
	}
	match := func(a *storagev1.VolumeAttachment) bool {
		name, _ := r.uniqueName(a)
		return a.Spec.NodeName != node && diskOf(name) == disk
	}
	return slices.DeleteFunc(r.merged(shown, match), func(a *storagev1.VolumeAttachment) bool { return !match(a) })
}

// waiting returns the nodes that may wait for the disk of an attachment.
func (r *reconciler) waiting(a *storagev1.VolumeAttachment) (out []loop.Key) {
	if volumeOf(a) == "" {
		return nil
	}
	pv, ok := r.volumes.Get("", volumeOf(a))
	if !ok {
		return r.allNodes() // another volume may have its disk
	}
	for _, v := range r.volumesOf(diskOf(uniqueOf(pv))) {
		if ref := v.Spec.ClaimRef; ref != nil {
			out = append(out, r.users(ref.Namespace, ref.Name)...)
		}
	}
	return out
}
