package registry

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// maxHealthMessage is the longest message about the health of a device, in bytes.
const maxHealthMessage = 1024

// validateAllocatedResources validates the health of devices in the status of containers.
// What was there before is not looked at again.
func validateAllocatedResources(new, old *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	extended := new.Status.ExtendedResourceClaimStatus
	check := func(new, old []corev1.ContainerStatus, spec []corev1.Container, path *field.Path) {
		for i := range new {
			s := &new[i]
			if len(s.AllocatedResourcesStatus) > 0 && !slices.ContainsFunc(old, func(o corev1.ContainerStatus) bool {
				return o.Name == s.Name && equality.Semantic.DeepEqual(o.AllocatedResourcesStatus, s.AllocatedResourcesStatus)
			}) {
				errs = append(errs, validateResourcesOf(s, spec, extended, path.Index(i).Child("allocatedResourcesStatus"))...)
			}
		}
	}
	check(new.Status.ContainerStatuses, old.Status.ContainerStatuses, old.Spec.Containers, path.Child("containerStatuses"))
	check(new.Status.InitContainerStatuses, old.Status.InitContainerStatuses, old.Spec.InitContainers, path.Child("initContainerStatuses"))
	return errs
}

func validateResourcesOf(s *corev1.ContainerStatus, spec []corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, path *field.Path) field.ErrorList {
	at := slices.IndexFunc(spec, func(c corev1.Container) bool { return c.Name == s.Name })
	if at < 0 {
		return field.ErrorList{field.Invalid(path, s.Name, "must belong to a container of the pod")}
	}
	name := func(r *corev1.ResourceStatus) corev1.ResourceName { return r.Name }
	id := func(h *corev1.ResourceHealth) corev1.ResourceID { return h.ResourceID }
	return validateSet(s.AllocatedResourcesStatus, unbounded, path, name, func(r *corev1.ResourceStatus, path *field.Path) field.ErrorList {
		var errs field.ErrorList
		if !hasResource(&spec[at], extended, r.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), r.Name, "must match one of the container's resource requirements"))
		}
		return append(errs, validateSet(r.Resources, unbounded, path.Child("resources"), id, validateResourceHealth)...)
	})
}

// hasResource reports whether a container asks for a resource. The claim of a container is named
// "claim:NAME", or "claim:NAME/REQUEST" if the container names a request.
func hasResource(c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, name corev1.ResourceName) bool {
	claim, ok := strings.CutPrefix(string(name), "claim:")
	if !ok {
		_, requested := c.Resources.Requests[name]
		_, limited := c.Resources.Limits[name]
		return requested || limited
	}
	return slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool {
		return claim == r.Name && r.Request == "" || claim == r.Name+"/"+r.Request
	}) || extended != nil && slices.ContainsFunc(extended.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == c.Name && claim == extended.ResourceClaimName+"/"+m.RequestName
	})
}

func validateResourceHealth(h *corev1.ResourceHealth, path *field.Path) field.ErrorList {
	errs := required(string(h.ResourceID), path.Child("resourceID"))
	errs = append(errs, fieldcheck.Supported(h.Health, path.Child("health"), corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
	if h.Message != nil && len(*h.Message) > maxHealthMessage {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxHealthMessage))
	}
	return errs
}
