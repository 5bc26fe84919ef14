package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DenyPrivileged returns an error for each privileged container of spec.
func DenyPrivileged(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(s *corev1.SecurityContext, at *field.Path) {
		if s != nil && s.Privileged != nil && *s.Privileged {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "privileged"), "disallowed by cluster policy"))
		}
	}
	for i := range spec.InitContainers {
		check(spec.InitContainers[i].SecurityContext, path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		check(spec.Containers[i].SecurityContext, path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		check(spec.EphemeralContainers[i].SecurityContext, path.Child("ephemeralContainers").Index(i))
	}
	return errs
}
