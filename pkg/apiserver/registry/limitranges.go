package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

// limitRanges are the limits and defaults that the admission plugin LimitRanger
// applies to a namespace.
func limitRanges(k *scheme.Kind, _ Config) *Kind {
	return Of[*corev1.LimitRange]{
		Default: defaultLimitRange,
		Prepare: func(_ context.Context, _ Backend, new, old *corev1.LimitRange) error {
			if old == nil && new.Name == "" {
				new.Name = string(uuid.NewUUID()) // as upstream: the name may be omitted
			}
			return nil
		},
		Validate:                 validateLimitRange,
		Columns:                  columns(createdColumn()),
		Row:                      func(l *corev1.LimitRange, _ time.Time) []any { return createdRow(&l.ObjectMeta) },
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

// defaultLimitRange completes the limits of containers: the default limit is the
// maximum, the default request is the default limit, else the minimum.
func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			podspec.RoundUp(list)
		}
		if item.Type == corev1.LimitTypeContainer {
			fillResources(&item.Default, item.Max)
			fillResources(&item.DefaultRequest, item.Default)
			fillResources(&item.DefaultRequest, item.Min)
		}
	}
}

// fillResources adds the quantities of from that list does not have.
func fillResources(list *corev1.ResourceList, from corev1.ResourceList) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	for name, q := range from {
		if _, ok := (*list)[name]; !ok {
			(*list)[name] = q.DeepCopy()
		}
	}
}

func validateLimitRange(new, _ *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[corev1.LimitType]{}
	for i := range new.Spec.Limits {
		item, path := &new.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, path.Child("type"))...)
		if seen.Has(item.Type) {
			errs = append(errs, field.Duplicate(path.Child("type"), item.Type))
		}
		seen.Insert(item.Type)
		errs = append(errs, validateLimitNames(item, path)...)
		if item.Type == corev1.LimitTypePersistentVolumeClaim && !has(item.Min, corev1.ResourceStorage) && !has(item.Max, corev1.ResourceStorage) {
			errs = append(errs, field.Required(path.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
		}
		for _, name := range limitedNames(item) {
			errs = append(errs, validateLimit(item, name, path)...)
		}
	}
	return errs
}

func has(list corev1.ResourceList, name corev1.ResourceName) bool {
	_, ok := list[name]
	return ok
}

func validateLimitType(t corev1.LimitType, path *field.Path) field.ErrorList {
	errs := fieldcheck.Invalid(validation.IsQualifiedName(string(t)), path, t)
	switch t {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return errs
	}
	if !strings.Contains(string(t), "/") {
		errs = append(errs, field.Invalid(path, t, "must be a standard limit type or fully qualified"))
	}
	return errs
}

// limitLists returns the lists of an item by the names of their fields. As
// upstream, the defaults of a Pod are refused and not looked at.
func limitLists(item *corev1.LimitRangeItem) map[string]corev1.ResourceList {
	lists := map[string]corev1.ResourceList{"max": item.Max, "min": item.Min, "maxLimitRequestRatio": item.MaxLimitRequestRatio}
	if item.Type != corev1.LimitTypePod {
		lists["default"], lists["defaultRequest"] = item.Default, item.DefaultRequest
	}
	return lists
}

// limitedNames returns the resources that an item limits, sorted.
func limitedNames(item *corev1.LimitRangeItem) []corev1.ResourceName {
	names := sets.Set[corev1.ResourceName]{}
	for _, list := range limitLists(item) {
		names.Insert(podspec.SortedNames(list)...)
	}
	return sets.List(names)
}

func validateLimitNames(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if item.Type == corev1.LimitTypePod {
		const notForPods = "may not be specified when `type` is 'Pod'"
		if len(item.Default) > 0 {
			errs = append(errs, field.Forbidden(path.Child("default"), notForPods))
		}
		if len(item.DefaultRequest) > 0 {
			errs = append(errs, field.Forbidden(path.Child("defaultRequest"), notForPods))
		}
	}
	validate := validateStandardName
	if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
		validate = podspec.ValidateResourceName
	}
	lists := limitLists(item)
	for _, name := range sets.List(sets.KeySet(lists)) {
		for _, r := range podspec.SortedNames(lists[name]) {
			errs = append(errs, validate(r, path.Child(name).Key(string(r)))...)
		}
	}
	return errs
}

// validateLimit validates that the limits of one resource do not contradict each
// other.
func validateLimit(item *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	lists := limitLists(item)
	// ordered requires that the quantity in one list is not above that in another.
	// The error is at, and shows, the field bad.
	ordered := func(low, lowText, high, highText, at, bad string) {
		l, ok := lists[low][name]
		h, also := lists[high][name]
		if ok && also && l.Cmp(h) > 0 {
			shown := lists[bad][name]
			errs = append(errs, field.Invalid(path.Child(at).Key(string(name)), shown.String(),
				fmt.Sprintf("%s value %s is greater than %s value %s", lowText, l.String(), highText, h.String())))
		}
	}
	ordered("min", "min", "max", "max", "min", "min")
	ordered("min", "min", "defaultRequest", "default request", "defaultRequest", "defaultRequest")
	ordered("defaultRequest", "default request", "max", "max", "defaultRequest", "defaultRequest")
	ordered("defaultRequest", "default request", "default", "default limit", "defaultRequest", "defaultRequest")
	ordered("min", "min", "default", "default", "default", "min")
	ordered("default", "default", "max", "max", "default", "max")
	errs = append(errs, validateRatio(item, name, path.Child("maxLimitRequestRatio").Key(string(name)))...)

	limit, limited := lists["default"][name]
	request, requested := lists["defaultRequest"][name]
	if limited && requested && !podspec.Native(name) && name != corev1.ResourceStorage && limit.Cmp(request) != 0 {
		errs = append(errs, field.Invalid(path.Child("defaultRequest").Key(string(name)), request.String(),
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)))
	}
	return errs
}

// validateRatio validates the maximum ratio of limit to request.
func validateRatio(item *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) field.ErrorList {
	ratio, ok := item.MaxLimitRequestRatio[name]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(path, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	low, hasLow := item.Min[name]
	high, hasHigh := item.Max[name]
	if !hasLow || !hasHigh {
		return errs
	}
	if most := high.AsApproximateFloat64() / low.AsApproximateFloat64(); ratio.AsApproximateFloat64() > most {
		errs = append(errs, field.Invalid(path, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), most)))
	}
	return errs
}
