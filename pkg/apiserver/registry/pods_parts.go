package registry

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
)

// prepareEphemeral takes nothing but the ephemeral containers of new.
func prepareEphemeral(new, old *corev1.Pod) {
	spec := old.Spec.DeepCopy()
	spec.EphemeralContainers = new.Spec.EphemeralContainers
	keepAllBut(spec, new, old)
}

// prepareResize takes nothing but the resources of the containers of new.
func prepareResize(new, old *corev1.Pod) {
	spec := old.Spec.DeepCopy()
	podspec.CopyResources(spec, &new.Spec)
	keepAllBut(spec, new, old)
}

// keepAllBut sets new to old with another spec. It keeps what identifies the
// version that new is made of.
func keepAllBut(spec *corev1.PodSpec, new, old *corev1.Pod) {
	new.Labels, new.Annotations = old.Labels, old.Annotations
	new.OwnerReferences, new.Finalizers = old.OwnerReferences, old.Finalizers
	new.Spec, new.Status = *spec, old.Status
	new.Generation = nextGeneration(&old.ObjectMeta, apiequality.Semantic.DeepEqual(new.Spec, old.Spec))
}

func validateEphemeral(new, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	if mirror(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	return append(podspec.Validate(&new.Spec, path), podspec.ValidateEphemeralUpdate(&new.Spec, &old.Spec, path)...)
}

func validateResize(new, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	if mirror(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	errs := podspec.Validate(&new.Spec, path)
	unresizable := func(s corev1.ContainerStatus) bool { return s.State.Running != nil && s.Resources == nil }
	if slices.ContainsFunc(old.Status.ContainerStatuses, unresizable) {
		errs = append(errs, field.Forbidden(path, "Pod running on node without support for resize"))
	}
	return append(errs, podspec.ValidateResize(&new.Spec, &old.Spec, path)...)
}

func mirror(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}
