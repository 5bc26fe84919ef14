package registry

import (
	"fmt"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxCapacityValues is the maximum number of amounts that a policy may list.
const maxCapacityValues = 10

// validateValues checks that the amounts that a claim may take of a capacity are in
// order, and that the default is one of them.
func validateValues(standard, capacity resource.Quantity, values []resource.Quantity, path *field.Path) field.ErrorList {
	if len(values) > maxCapacityValues {
		return field.ErrorList{field.TooMany(path, len(values), maxCapacityValues)}
	}
	var errs field.ErrorList
	found := false
	for i, v := range values {
		at := path.Index(i)
		if i > 0 && values[i-1].Cmp(v) > 0 {
			errs = append(errs, field.Invalid(at, v.String(), "values must be sorted in ascending order"))
		}
		if i > 0 && values[i-1].Cmp(v) == 0 {
			errs = append(errs, field.Duplicate(at, v.String()))
		}
		if v.Cmp(capacity) > 0 {
			errs = append(errs, field.Invalid(at, v.String(), "option is larger than capacity value: "+capacity.String()))
		}
		found = found || v.Cmp(standard) == 0
	}
	if !found {
		errs = append(errs, field.Invalid(path, standard.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

// validateRange checks that a range is within the capacity, and the default within
// the range.
func validateRange(standard, capacity resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, path *field.Path) field.ErrorList {
	if r.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"), "required when validRange is defined")}
	}
	var errs field.ErrorList
	above := func(name string, q, limit resource.Quantity, text string) {
		if q.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child(name), q.String(), text+limit.String()))
		}
	}
	above("min", *r.Min, capacity, "min is larger than capacity value: ")
	if standard.Cmp(*r.Min) < 0 {
		errs = append(errs, field.Invalid(path.Child("default"), standard.String(), "default is less than min: "+r.Min.String()))
	}
	if r.Max != nil {
		above("max", *r.Min, *r.Max, "min is larger than max: ")
		above("max", *r.Max, capacity, "max is larger than capacity value: ")
		above("default", standard, *r.Max, "default is more than max: ")
	}
	if r.Step != nil {
		errs = append(errs, validateStep(standard, capacity, r, path)...)
	}
	return errs
}

// validateStep checks that the default and the maximum are multiples of the step above
// the minimum.
func validateStep(standard, capacity resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, path *field.Path) field.ErrorList {
	at := path.Child("step")
	if r.Step.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, r.Step.String(), "must be greater than zero")}
	}
	var errs field.ErrorList
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	if first.Cmp(capacity) > 0 {
		errs = append(errs, field.Invalid(at, r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), capacity.String())))
	}
	ends := []rangeAmount{{"default", &standard}, {"max", r.Max}}
	for _, b := range append(ends, rangeAmount{"min", r.Min}, rangeAmount{"step", r.Step}) {
		errs = append(errs, b.validate(path)...)
	}
	if len(errs) > 0 {
		return errs // the arithmetic below would overflow
	}
	for _, b := range ends {
		if b.amount != nil && (b.amount.Value()-r.Min.Value())%r.Step.Value() != 0 {
			errs = append(errs, field.Invalid(at, b.amount.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
	return errs
}

// rangeAmount is one amount of a range; nil is unset.
type rangeAmount struct {
	name   string
	amount *resource.Quantity
}

// validate checks that the amount is one of int64 that is not negative.
func (b rangeAmount) validate(path *field.Path) field.ErrorList {
	switch {
	case b.amount == nil:
		return nil
	case b.amount.Sign() < 0:
		return field.ErrorList{field.Invalid(path.Child(b.name), b.amount.String(), apivalidation.IsNegativeErrorMsg)}
	case b.amount.CmpInt64(math.MaxInt64) > 0:
		return field.ErrorList{field.Invalid(path.Child(b.name), b.amount.String(), "must not be larger than 9223372036854775807")}
	}
	return nil
}
