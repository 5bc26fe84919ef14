package registry

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

// checkFinalizers adds the validation of metadata.finalizers to every write of the
// metadata of k. Upstream has it in the validation of each kind except leases and
// customresourcedefinitions.
func checkFinalizers(k *Kind) {
	if !k.Stored() || k.Resource == "leases" || k.Resource == "customresourcedefinitions" {
		return
	}
	k.Validate = finalizersAnd(k.Validate)
	for _, s := range k.Subresources {
		if s.PreparePart != nil {
			s.ValidatePart = finalizersAnd(s.ValidatePart)
		}
	}
}

// finalizersAnd returns validate, which may be nil, preceded by the validation of
// finalizers.
func finalizersAnd(validate func(new, old scheme.Object) field.ErrorList) func(new, old scheme.Object) field.ErrorList {
	return func(new, old scheme.Object) field.ErrorList {
		errs := validateFinalizerNames(new, old)
		if validate != nil {
			errs = append(errs, validate(new, old)...)
		}
		return errs
	}
}

// validateFinalizerNames checks that each finalizer is a standard one or is
// qualified with a domain. It accepts the finalizers of old, so that an object
// stored without this validation remains writable.
func validateFinalizerNames(new, old scheme.Object) field.ErrorList {
	if len(new.GetFinalizers()) == 0 {
		return nil
	}
	known := sets.New(string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents)
	if old != nil {
		known.Insert(old.GetFinalizers()...)
	}
	var errs field.ErrorList
	for i, name := range new.GetFinalizers() {
		if !strings.Contains(name, "/") && !known.Has(name) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(i), name,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}
