// Package attachment holds what the controller that attaches volumes to nodes and the
// kubelet that waits for it have to agree on: the names of attached volumes and of
// VolumeAttachments, and which volumes must be attached.
package attachment

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const prefix = "kubernetes.io/csi/"

// Volume returns the name of a CSI volume in the lists of a node's status.
func Volume(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(prefix + driver + "^" + handle)
}

// Parse is the reverse of Volume. ok is false for volumes of other kinds.
func Parse(name corev1.UniqueVolumeName) (driver, handle string, ok bool) {
	rest, ok := strings.CutPrefix(string(name), prefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "^")
}

// Name returns the name of the VolumeAttachment of a volume and a node.
func Name(driver, handle, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// Required reports whether the volumes of a driver must be attached to a node before the
// kubelet mounts them. As upstream, they must if the driver has no CSIDriver object.
func Required(driver *storagev1.CSIDriver) bool {
	return driver == nil || driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
}

// InUse reports whether the kubelet of a node uses a volume.
func InUse(n *corev1.Node, volume corev1.UniqueVolumeName) bool {
	return slices.Contains(n.Status.VolumesInUse, volume)
}

// Attached reports whether the controller has attached a volume to a node.
func Attached(n *corev1.Node, volume corev1.UniqueVolumeName) bool {
	return slices.ContainsFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == volume })
}
