package noderestriction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"podium/pkg/apiserver/admission"
	"podium/pkg/volumebinding"
)

// volume admits only that a node adds or removes the finalizer of local-path volumes on
// volumes that are confined to it.
func (r *rules) volume() error {
	if r.Operation != admission.Update || r.Subresource != "" {
		return r.no("unexpected operation %q, node %q can only update finalizers of persistentvolumes", r.Operation, r.node)
	}
	old, next := r.Old.(*corev1.PersistentVolume), r.Object.(*corev1.PersistentVolume)
	if volumebinding.Home(old) != r.node {
		return r.no("node %q can only update persistentvolumes that are confined to it", r.node)
	}
	was, is := bare(old), bare(next)
	if !slices.Equal(was.Finalizers, is.Finalizers) {
		return r.no("node %q can only add and remove the finalizer %s of persistentvolumes", r.node, volumebinding.LocalPath)
	}
	if !apiequality.Semantic.DeepEqual(was, is) {
		return r.no("node %q can only update finalizers of persistentvolumes", r.node)
	}
	return nil
}

// bare returns a copy of a volume without the finalizer and what every write changes.
func bare(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	out := v.DeepCopy()
	out.ManagedFields, out.ResourceVersion = nil, ""
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == volumebinding.LocalPath })
	return out
}
