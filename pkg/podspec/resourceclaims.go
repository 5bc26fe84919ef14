package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// validateResourceClaims validates the claims that the containers of a pod may use.
func validateResourceClaims(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range spec.ResourceClaims {
		c, at := &spec.ResourceClaims[i], path.Child("resourceClaims").Index(i)
		switch name := at.Child("name"); {
		case c.Name == "":
			errs = append(errs, field.Required(name, ""))
		case seen[c.Name]:
			errs = append(errs, field.Duplicate(name, c.Name))
		default:
			errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(c.Name), name, c.Name)...)
		}
		seen[c.Name] = true
		errs = append(errs, validateClaimSource(c, at)...)
	}
	for list, at := range containerLists(spec, path) {
		for i := range list {
			errs = append(errs, validateUsedClaims(list[i].Resources.Claims, seen, at.Index(i).Child("resources", "claims"))...)
		}
	}
	return errs
}

// validateClaimSource checks that a claim is named, or the template of one.
func validateClaimSource(c *corev1.PodResourceClaim, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
		errs = append(errs, field.Invalid(at, *c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
	case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
		errs = append(errs, field.Invalid(at, *c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
	}
	if c.ResourceClaimName != nil {
		errs = append(errs, validateObjectName(*c.ResourceClaimName, at.Child("resourceClaimName"))...)
	}
	if c.ResourceClaimTemplateName != nil {
		errs = append(errs, validateObjectName(*c.ResourceClaimTemplateName, at.Child("resourceClaimTemplateName"))...)
	}
	return errs
}

// containerLists yields the lists of a pod's containers, with their paths.
func containerLists(spec *corev1.PodSpec, path *field.Path) func(yield func([]corev1.Container, *field.Path) bool) {
	return func(yield func([]corev1.Container, *field.Path) bool) {
		_ = yield(spec.InitContainers, path.Child("initContainers")) && yield(spec.Containers, path.Child("containers"))
	}
}

// validateUsedClaims validates which of the pod's claims a container uses. A claim, and a
// request of it, is used once.
func validateUsedClaims(used []corev1.ResourceClaim, known map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range used {
		name := at.Index(i).Child("name")
		same := func(o corev1.ResourceClaim) bool {
			return o.Name == c.Name && (o.Request == c.Request || o.Request == "" || c.Request == "")
		}
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(name, ""))
		case slices.ContainsFunc(used[:i], same):
			errs = append(errs, field.Duplicate(at.Index(i), c.Name))
		case !known[c.Name]:
			errs = append(errs, field.NotFound(name, c.Name))
		}
		if c.Request != "" {
			errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(c.Request), at.Index(i).Child("request"), c.Request)...)
		}
	}
	return errs
}

// ValidateClaimStatuses validates the names of the claims that were made for a pod. Those
// that old has are not validated again.
func ValidateClaimStatuses(new, old []corev1.PodResourceClaimStatus, claims []corev1.PodResourceClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range new {
		at := path.Index(i)
		named := func(o corev1.PodResourceClaimStatus) bool { return o.Name == s.Name }
		if slices.ContainsFunc(new[:i], named) {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		if !slices.ContainsFunc(claims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if s.ResourceClaimName != nil && !slices.ContainsFunc(old, named) {
			errs = append(errs, validateObjectName(*s.ResourceClaimName, at.Child("name"))...)
		}
	}
	return errs
}

// ValidateExtendedClaimStatus validates which devices of a claim stand for extended resources of
// containers, unless old says the same.
func ValidateExtendedClaimStatus(new, old *corev1.PodExtendedResourceClaimStatus, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if new == nil || equality.Semantic.DeepEqual(new, old) {
		return nil
	}
	errs := validateObjectName(new.ResourceClaimName, path.Child("resourceClaimName"))
	mappings := path.Child("requestMappings")
	if len(new.RequestMappings) == 0 {
		errs = append(errs, field.Required(mappings, ""))
	}
	containers := slices.Concat(spec.InitContainers, spec.Containers)
	for i, m := range new.RequestMappings {
		at := mappings.Index(i)
		if slices.Contains(new.RequestMappings[:i], m) {
			errs = append(errs, field.Duplicate(at, m))
		}
		c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == m.ContainerName })
		if c < 0 {
			errs = append(errs, field.Invalid(at.Child("containerName"), m.ContainerName, "must match the name of a container"))
		} else if _, asked := containers[c].Resources.Requests[corev1.ResourceName(m.ResourceName)]; !asked {
			errs = append(errs, field.Invalid(at.Child("resourceName"), m.ResourceName, "must match a resource that the container requests"))
		}
		for _, msg := range validation.IsDNS1123Label(m.RequestName) {
			errs = append(errs, field.Invalid(at.Child("requestName"), m.RequestName, msg))
		}
	}
	return errs
}
