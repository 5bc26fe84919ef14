package registry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

func validateConditionType(t string, path *field.Path) field.ErrorList {
	return fieldcheck.Invalid(validation.IsQualifiedName(t), path, t)
}

// validatePodIPs checks that the addresses are valid and that the first one is
// podIP.
func validatePodIPs(status *corev1.PodStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range status.PodIPs {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Index(i), ip.IP, false, nil)...)
	}
	if status.PodIP != "" && len(status.PodIPs) > 0 && status.PodIP != status.PodIPs[0].IP {
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), status.PodIPs[0].IP, "must be equal to `podIP`"))
	}
	return errs
}

func orDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

// newIfNil sets a pointer to a new value if it is nil.
func newIfNil[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// validateSubdomain validates the name of another object, as most kinds have them.
func validateSubdomain(name string, path *field.Path) field.ErrorList {
	return fieldcheck.Invalid(apivalidation.NameIsDNSSubdomain(name, false), path, name)
}

// validateSegment checks that a required value can be a segment of a URL path.
func validateSegment(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return fieldcheck.Invalid(content.IsPathSegmentName(value), path, value)
}

// validateReference validates a reference to an object of any kind. A nil group is
// the core group.
func validateReference(group *string, kind, name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(*group), path.Child("apiGroup"), *group)...)
	}
	errs = append(errs, validateSegment(kind, path.Child("kind"))...)
	return append(errs, validateSegment(name, path.Child("name"))...)
}

// validateConditionTypes checks that the types of conditions are set and unique.
func validateConditionTypes[T any, S ~string](list []T, typeOf func(*T) S, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[S]bool{}
	for i := range list {
		at, t := path.Index(i).Child("type"), typeOf(&list[i])
		if seen[t] {
			errs = append(errs, field.Duplicate(at, t))
		}
		if t == "" {
			errs = append(errs, field.Required(at, "must not be empty"))
		}
		seen[t] = true
	}
	return errs
}
