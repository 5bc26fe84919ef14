package podspec

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
)

// validatePodResources validates the resources that the containers of a pod share: CPU,
// memory and huge pages. The containers' requests together, and the limit of each, must not
// exceed those of the pod.
func validatePodResources(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	r := spec.Resources
	if r == nil {
		return nil
	}
	at := path.Child("resources")
	var errs field.ErrorList
	if len(r.Claims) > 0 {
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	errs = append(errs, podLevelNames(r.Limits, at.Child("limits"))...)
	errs = append(errs, podLevelNames(r.Requests, at.Child("requests"))...)
	errs = append(errs, ValidateResources(r, at)...)

	sum := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	for _, name := range SortedNames(sum) {
		want := sum[name]
		if q, ok := r.Requests[name]; ok && want.Cmp(q) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), q.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", want.String())))
		}
	}
	errs = append(errs, withinPodLimits(spec.InitContainers, r.Limits, path.Child("initContainers"))...)
	return append(errs, withinPodLimits(spec.Containers, r.Limits, path.Child("containers"))...)
}

// podLevelNames rejects resources that containers cannot share.
func podLevelNames(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range SortedNames(list) {
		if !resourcehelper.IsSupportedPodLevelResource(name) {
			errs = append(errs, field.NotSupported(path.Key(string(name)), name, sets.List(resourcehelper.SupportedPodLevelResources())))
		}
	}
	return errs
}

func withinPodLimits(containers []corev1.Container, limits corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		own := containers[i].Resources.Limits
		for _, name := range SortedNames(own) {
			q := own[name]
			if most, ok := limits[name]; ok && q.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(path.Index(i).Child("resources", "limits").Key(string(name)), q.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
			}
		}
	}
	return errs
}

// defaultHugePageLimits sets the limits of huge pages that a pod with resources of its own does not
// set: to the sum of its containers' limits. They are not overcommitted, so its requests are the same.
func defaultHugePageLimits(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	for name, q := range resourcehelper.AggregateContainerLimits(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{}) {
		_, requested := r.Requests[name]
		if _, set := r.Limits[name]; set || requested || !hugePages(name) {
			continue
		}
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[name] = q.DeepCopy()
	}
}

// defaultPodRequests sets the requests that a pod with resources of its own does not
// set: to the sum of its containers' requests or, if these request nothing, to its
// limits. Huge pages are not overcommitted: requests are limits.
func defaultPodRequests(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	sum := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(sum, func(name corev1.ResourceName, _ resource.Quantity) bool { return hugePages(name) })
	for _, list := range []corev1.ResourceList{sum, r.Limits} {
		for name, q := range list {
			if _, set := r.Requests[name]; set || !resourcehelper.IsSupportedPodLevelResource(name) {
				continue
			}
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = q.DeepCopy()
		}
	}
}
