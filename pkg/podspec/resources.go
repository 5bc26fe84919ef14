package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// ValidateResources validates requests and limits.
func ValidateResources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	names := slices.Concat(SortedNames(r.Limits), SortedNames(r.Requests))
	if slices.ContainsFunc(names, hugePages) && !slices.Contains(names, corev1.ResourceCPU) && !slices.Contains(names, corev1.ResourceMemory) {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	for _, name := range SortedNames(r.Limits) {
		errs = append(errs, validateQuantity(name, r.Limits[name], limits.Key(string(name)))...)
	}
	for _, name := range SortedNames(r.Requests) {
		q := r.Requests[name]
		errs = append(errs, validateQuantity(name, q, requests.Key(string(name)))...)
		limit, limited := r.Limits[name]
		switch {
		case limited && !Native(name) && q.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && q.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && !Native(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		}
	}
	return errs
}

func validateQuantity(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	errs := ValidateResourceName(name, path)
	switch {
	case q.Sign() < 0:
		errs = append(errs, field.Invalid(path, q.String(), "must be greater than or equal to 0"))
	case !Native(name) && q.MilliValue()%1000 != 0:
		errs = append(errs, field.Invalid(path, q, "must be an integer"))
	case hugePages(name) && !wholePages(name, q):
		errs = append(errs, field.Invalid(path, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
	}
	return errs
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// wholePages reports whether an amount of memory is a number of huge pages.
func wholePages(name corev1.ResourceName, q resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
}

// ValidateResourceName checks that containers may request a resource of this name.
func ValidateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := fieldcheck.Invalid(validation.IsQualifiedName(string(name)), path, name)
	if len(errs) > 0 || Native(name) || hugePages(name) {
		return errs
	}
	switch {
	case !strings.Contains(string(name), "/"):
		return field.ErrorList{field.Invalid(path, name, "must be a standard resource for containers")}
	case strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix): // devices of a class
	case strings.Contains(string(name), "kubernetes.io/"):
		return field.ErrorList{field.Invalid(path, name, "must be a standard resource for containers")}
	}
	return nil
}

// Native reports whether a resource is one of cpu, memory and ephemeral-storage.
// All others are counted in integers and cannot be overcommitted.
func Native(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// SortedNames returns the names of the resources in a list, sorted.
func SortedNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// QOSClass returns the QoS class of a pod: Guaranteed if every container has CPU
// and memory limits and requests that are unset or equal to them, BestEffort if no
// container has requests or limits for CPU or memory, else Burstable. Resources of the
// pod itself count instead of its containers'.
func QOSClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, asked := true, false
	look := func(r *corev1.ResourceRequirements) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				asked = true
			}
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	if r := spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		look(r)
	} else {
		for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
			for i := range list {
				look(&list[i].Resources)
			}
		}
	}
	switch {
	case !asked:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// ValidateQuantities validates the capacity or the allocatable resources of a node.
func ValidateQuantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range SortedNames(list) {
		q, at := list[name], path.Child(string(name))
		switch {
		case q.Sign() < 0:
			errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
		case strings.Contains(string(name), "/") && q.MilliValue()%1000 != 0:
			errs = append(errs, field.Invalid(at, q, "must be an integer"))
		}
	}
	return errs
}
