package registry

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// messages makes an error of each message about value.
func messages(list []string, path *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	for _, m := range list {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

func validateConditionType(t string, path *field.Path) field.ErrorList {
	return messages(validation.IsQualifiedName(t), path, t)
}

// validatePodIPs: one address of each family at most, the first being podIP.
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

// oneOf says that value is not set, or is none of the valid ones.
func oneOf[T ~string](value T, path *field.Path, valid ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(valid, value):
		return field.ErrorList{field.NotSupported(path, value, valid)}
	}
	return nil
}

func orDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}
