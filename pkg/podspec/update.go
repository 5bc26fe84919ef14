package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const mayChange = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`," +
	"`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// ValidateUpdate validates the changes to the spec of an existing pod: only images
// may change, the deadline may be shortened, and tolerations may be added.
func ValidateUpdate(new, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	if apiequality.Semantic.DeepEqual(new, old) {
		return nil
	}
	for _, list := range []struct {
		name     string
		new, old []corev1.Container
	}{
		{"containers", new.Containers, old.Containers},
		{"initContainers", new.InitContainers, old.InitContainers},
	} {
		if len(list.new) != len(list.old) {
			return field.ErrorList{field.Forbidden(path.Child(list.name), "pod updates may not add or remove containers")}
		}
	}
	errs := validateDeadlineUpdate(new.ActiveDeadlineSeconds, old.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"))
	errs = append(errs, validateTolerationsUpdate(new.Tolerations, old.Tolerations, path.Child("tolerations"))...)

	// Without the mutable fields, both specs must be equal.
	rest := new.DeepCopy()
	restoreImages(rest.Containers, old.Containers)
	restoreImages(rest.InitContainers, old.InitContainers)
	rest.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	rest.Tolerations = old.Tolerations
	errs = append(errs, validateGatesUpdate(new.SchedulingGates, old.SchedulingGates, path.Child("schedulingGates"))...)
	rest.SchedulingGates = old.SchedulingGates
	errs = append(errs, narrow(rest, old, path)...)
	if !apiequality.Semantic.DeepEqual(rest, old) {
		errs = append(errs, field.Forbidden(path, mayChange+"\n"+Changes(old, rest)))
	}
	return errs
}

func restoreImages(new, old []corev1.Container) {
	for i := range new {
		new[i].Image = old[i].Image
	}
}

func validateDeadlineUpdate(new, old *int64, path *field.Path) field.ErrorList {
	switch {
	case new == nil && old == nil:
	case new == nil:
		return field.ErrorList{field.Invalid(path, new, "must not update from a positive integer to nil value")}
	case *new < 0 || *new > math.MaxInt32:
		return field.ErrorList{field.Invalid(path, *new, validation.InclusiveRangeError(0, math.MaxInt32))}
	case old != nil && *new > *old:
		return field.ErrorList{field.Invalid(path, *new, "must be less than or equal to previous value")}
	}
	return nil
}

// validateTolerationsUpdate checks that existing tolerations remain; their
// tolerationSeconds may change.
func validateTolerationsUpdate(new, old []corev1.Toleration, path *field.Path) field.ErrorList {
	for _, o := range old {
		kept := false
		for _, n := range new {
			o.TolerationSeconds, n.TolerationSeconds = nil, nil
			kept = kept || o == n
		}
		if !kept {
			return field.ErrorList{field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}
