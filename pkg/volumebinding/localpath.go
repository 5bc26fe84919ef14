package volumebinding

import (
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LocalPath names the provisioner of volumes that are directories of nodes, and what it
// writes: the annotation of a Node with the directory below which its kubelet keeps them,
// and the finalizer of a volume whose directory may exist.
const LocalPath = "podium.dev/local-path"

// HomeField is the field selector of PersistentVolumes by Home.
const HomeField = "spec.nodeAffinity.nodeName"

// LocalPathDir returns the directory of a volume below the directory of all.
func LocalPathDir(root, volume string) string { return filepath.Join(root, volume) }

// IsLocalPath reports whether the provisioner LocalPath has made a volume.
func IsLocalPath(v *corev1.PersistentVolume) bool {
	return v.Annotations[ProvisionedBy] == LocalPath && v.Spec.Local != nil
}

// OnNode returns the affinity of a volume that is on one node. It names the Node: the
// label kubernetes.io/hostname may differ.
func OnNode(name string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}}
}

// Home returns the node to which the affinity of a volume confines it by the Node's name,
// "" if it does not.
func Home(v *corev1.PersistentVolume) string {
	a := v.Spec.NodeAffinity
	if a == nil || a.Required == nil || len(a.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.Required.NodeSelectorTerms[0]
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// Held reports whether the directory of a volume may exist.
func Held(v *corev1.PersistentVolume) bool { return slices.Contains(v.Finalizers, LocalPath) }

// TooLarge returns why a claim does not fit on a node, "" if it requests no more than the
// node's disk has, or if that is not known. node may be nil.
func TooLarge(node *corev1.Node, claim *corev1.PersistentVolumeClaim) string {
	if node == nil {
		return ""
	}
	disk, known := node.Status.Capacity[corev1.ResourceEphemeralStorage]
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !known || size.Cmp(disk) <= 0 {
		return ""
	}
	return fmt.Sprintf("the claim requests %s, the disk of node %q has %s", size.String(), node.Name, disk.String())
}
