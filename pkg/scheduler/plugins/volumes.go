package plugins

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/nodevolumelimits"
	"podium/pkg/scheduler/plugins/volumebinding"
	"podium/pkg/scheduler/plugins/volumerestrictions"
	"podium/pkg/scheduler/plugins/volumezone"
)

// Volumes are the plugins that read claims and volumes. Every profile has them, after its
// other plugins. The caller tells them of the changes of objects.
type Volumes struct {
	*volumebinding.Plugin
	limits *nodevolumelimits.Plugin
}

// NewVolumes returns the plugins. node returns a node, nil if it does not exist.
func NewVolumes(w volumebinding.Writer, node func(name string) *corev1.Node) Volumes {
	bindings := volumebinding.New(w, node)
	return Volumes{bindings, nodevolumelimits.New(bindings)}
}

// List returns the plugins in the order in which they run.
func (v Volumes) List() []framework.Weighted {
	return []framework.Weighted{
		{Plugin: volumerestrictions.New(v.Claim)}, {Plugin: v.limits}, {Plugin: v.Plugin}, {Plugin: volumezone.New(v.Plugin)},
	}
}

// OnCSINode records a change of a CSINode.
func (v Volumes) OnCSINode(old, new *storagev1.CSINode) { v.limits.OnCSINode(old, new) }

// OnAttachment records a change of a VolumeAttachment. It reports whether the change may let a pod
// fit.
func (v Volumes) OnAttachment(old, new *storagev1.VolumeAttachment) (helps bool) {
	return v.limits.OnAttachment(old, new)
}
