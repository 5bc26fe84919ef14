package localpath

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/volumebinding"
)

// plan is what to do about a claim; the zero value is nothing.
type plan struct {
	Create     *corev1.PersistentVolume
	Reschedule bool   // remove the selected node from the claim, so that the scheduler selects one again
	Refuse     string // why no volume is provisioned; the message of an event
}

// wanted reports whether a claim waits for a volume from this provisioner.
func wanted(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[volumebinding.Provisioner] == volumebinding.LocalPath && claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil
}

// decide says what to do about a claim that is wanted. class and node are nil if they do
// not exist.
func decide(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) plan {
	if class == nil || class.Provisioner != volumebinding.LocalPath {
		return plan{}
	}
	if why := unsupported(claim, class); why != "" {
		return plan{Refuse: why}
	}
	name := claim.Annotations[volumebinding.SelectedNode]
	switch {
	case name == "" && volumebinding.Delayed(class):
		return plan{} // the scheduler is to select a node
	case name == "":
		return plan{Refuse: fmt.Sprintf("storage class %q needs volumeBindingMode WaitForFirstConsumer: the volume is on the node of its first pod", class.Name)}
	case node == nil:
		return plan{Reschedule: true, Refuse: fmt.Sprintf("node %q does not exist", name)}
	case node.Annotations[volumebinding.LocalPath] == "":
		return plan{Reschedule: true, Refuse: fmt.Sprintf("the kubelet of node %q does not serve local-path volumes", name)}
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if why := volumebinding.TooLarge(node, claim); why != "" {
		return plan{Reschedule: true, Refuse: why}
	}
	return plan{Create: newVolume(claim, class, node, corev1.ResourceList{corev1.ResourceStorage: size})}
}

// unsupported returns what a claim or its class asks for that a directory cannot give, ""
// if there is nothing.
func unsupported(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
	for _, mode := range claim.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return fmt.Sprintf("access mode %s is not supported: the volume is a directory of one node (ReadWriteOnce, ReadWriteOncePod)", mode)
		}
	}
	switch mode := claim.Spec.VolumeMode; {
	case mode != nil && *mode != corev1.PersistentVolumeFilesystem:
		return fmt.Sprintf("volumeMode %s is not supported", *mode)
	case claim.Spec.Selector != nil:
		return "spec.selector is not supported"
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return "spec.dataSource is not supported"
	case claim.Spec.VolumeAttributesClassName != nil && *claim.Spec.VolumeAttributesClassName != "":
		return "spec.volumeAttributesClassName is not supported"
	case len(class.Parameters) > 0:
		return fmt.Sprintf("storage class %q has parameters: the provisioner has none", class.Name)
	case len(class.MountOptions) > 0:
		return fmt.Sprintf("storage class %q has mountOptions: a directory is not mounted", class.Name)
	}
	return ""
}

func newVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node, size corev1.ResourceList) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	mode := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{volumebinding.ProvisionedBy: volumebinding.LocalPath}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: slices.Clone(claim.Spec.AccessModes), VolumeMode: &mode, StorageClassName: class.Name,
			PersistentVolumeReclaimPolicy: policy, ClaimRef: volumebinding.Reference(claim),
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{
				Path: volumebinding.LocalPathDir(node.Annotations[volumebinding.LocalPath], name),
			}},
			NodeAffinity: volumebinding.OnNode(node.Name),
		},
	}
}
