package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateMirror requires that a mirror of a static pod is created on a node.
func validateMirror(pod *corev1.Pod) field.ErrorList {
	value, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	if !mirror || pod.Spec.NodeName != "" {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")}
}

// ValidateMirrorUpdate keeps a pod from becoming a mirror of a static pod, or from being one
// no more: kubelets do not run mirrors.
func ValidateMirrorUpdate(annotations, old map[string]string, path *field.Path) field.ErrorList {
	value, is := annotations[corev1.MirrorPodAnnotationKey]
	before, was := old[corev1.MirrorPodAnnotationKey]
	at := path.Key(corev1.MirrorPodAnnotationKey)
	switch {
	case was && (!is || value != before):
		return field.ErrorList{field.Forbidden(at, "may not remove or update mirror pod annotation")}
	case is && !was:
		return field.ErrorList{field.Forbidden(at, "may not add mirror pod annotation")}
	}
	return nil
}
