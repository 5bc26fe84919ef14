package registry

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// Limits of the policies of jobs.
const (
	maxPolicyRules      = 20
	maxPolicyExitCodes  = 255
	maxPolicyConditions = 20
	maxPolicyIndexes    = 64 * 1024 // bytes
)

func validatePodFailurePolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if spec.PodFailurePolicy == nil {
		return nil
	}
	path = path.Child("rules")
	rules := spec.PodFailurePolicy.Rules
	errs := tooMany(len(rules), maxPolicyRules, path)
	names := sets.New[string]()
	for _, list := range [][]corev1.Container{spec.Template.Spec.Containers, spec.Template.Spec.InitContainers} {
		for i := range list {
			names.Insert(list[i].Name)
		}
	}
	for i := range rules {
		errs = append(errs, validatePodFailureRule(spec, &rules[i], names, path.Index(i))...)
	}
	return errs
}

func tooMany(n, limit int, path *field.Path) field.ErrorList {
	if n <= limit {
		return nil
	}
	return field.ErrorList{field.TooMany(path, n, limit)}
}

// requiredOneOf returns an error that names the valid values if value is empty or is
// none of them.
func requiredOneOf[T ~string](value T, path *field.Path, valid ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q", valid))}
	}
	return fieldcheck.Supported(value, path, valid...)
}

func validatePodFailureRule(spec *batchv1.JobSpec, rule *batchv1.PodFailurePolicyRule, names sets.Set[string], path *field.Path) field.ErrorList {
	action := path.Child("action")
	errs := requiredOneOf(rule.Action, action,
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
	if rule.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(action, rule.Action, "requires the backoffLimitPerIndex to be set"))
	}
	if rule.OnExitCodes != nil {
		errs = append(errs, validateOnExitCodes(rule.OnExitCodes, names, path.Child("onExitCodes"))...)
	}
	at := path.Child("onPodConditions")
	errs = append(errs, tooMany(len(rule.OnPodConditions), maxPolicyConditions, at)...)
	for i, c := range rule.OnPodConditions {
		errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(string(c.Type)), at.Index(i).Child("type"), string(c.Type))...)
		errs = append(errs, requiredOneOf(c.Status, at.Index(i).Child("status"), corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
	}
	switch both, none := rule.OnExitCodes != nil && len(rule.OnPodConditions) > 0, rule.OnExitCodes == nil && len(rule.OnPodConditions) == 0; {
	case both:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case none:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	return errs
}

func validateOnExitCodes(on *batchv1.PodFailurePolicyOnExitCodesRequirement, names sets.Set[string], path *field.Path) field.ErrorList {
	errs := requiredOneOf(on.Operator, path.Child("operator"), batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if on.ContainerName != nil && !names.Has(*on.ContainerName) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *on.ContainerName, "must be one of the container or initContainer names in the pod template"))
	}
	at := path.Child("values")
	if len(on.Values) == 0 {
		errs = append(errs, field.Invalid(at, on.Values, "at least one value is required"))
	}
	errs = append(errs, tooMany(len(on.Values), maxPolicyExitCodes, at)...)
	seen := sets.New[int32]()
	for i, code := range on.Values {
		if code == 0 && on.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(at.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen.Has(code) {
			errs = append(errs, field.Duplicate(at.Index(i), code))
		}
		seen.Insert(code)
	}
	if !slices.IsSorted(on.Values) {
		errs = append(errs, field.Invalid(at, on.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	path = path.Child("rules")
	rules := spec.SuccessPolicy.Rules
	errs := tooMany(len(rules), maxPolicyRules, path)
	if len(rules) == 0 {
		errs = append(errs, field.Required(path, "at least one rules must be specified when the successPolicy is specified"))
	}
	if spec.Completions == nil {
		return errs // which is an error of its own
	}
	for i := range rules {
		errs = append(errs, validateSuccessRule(&rules[i], *spec.Completions, path.Index(i))...)
	}
	return errs
}

func validateSuccessRule(rule *batchv1.SuccessPolicyRule, completions int32, path *field.Path) field.ErrorList {
	if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
		return field.ErrorList{field.Required(path, "at least one of succeededCount or succeededIndexes must be specified")}
	}
	var errs field.ErrorList
	total := int32(0)
	if text := rule.SucceededIndexes; text != nil {
		at := path.Child("succeededIndexes")
		if len(*text) > maxPolicyIndexes {
			return field.ErrorList{field.TooLong(at, *text, maxPolicyIndexes)}
		}
		var err error
		if total, err = countIndexes(*text, completions); err != nil {
			errs = append(errs, field.Invalid(at, *text, "error parsing succeededIndexes: "+err.Error()))
		}
	}
	if n := rule.SucceededCount; n != nil {
		at := path.Child("succeededCount")
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), at)...)
		if *n > completions {
			errs = append(errs, field.Invalid(at, *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
		}
		if rule.SucceededIndexes != nil && *n > total {
			errs = append(errs, field.Invalid(at, *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
		}
	}
	return errs
}
