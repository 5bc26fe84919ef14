package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// validatePlacement validates the fields that determine on which nodes the pod may
// run.
func validatePlacement(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))
	if spec.NodeName != "" {
		errs = append(errs, fieldcheck.Invalid(apivalidation.NameIsDNSSubdomain(spec.NodeName, false), path.Child("nodeName"), spec.NodeName)...)
	}
	if spec.SchedulerName == "" {
		errs = append(errs, field.Required(path.Child("schedulerName"), ""))
	} else {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(spec.SchedulerName), path.Child("schedulerName"), spec.SchedulerName)...)
	}
	errs = append(errs, ValidateTolerations(spec.Tolerations, path.Child("tolerations"))...)
	errs = append(errs, validateAffinity(spec.Affinity, path.Child("affinity"))...)
	return append(errs, validateSpread(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
}

// ValidateTolerations validates the tolerations of a pod.
func ValidateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range tolerations {
		t, at := &tolerations[i], path.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if bad := validation.IsValidLabelValue(t.Value); len(bad) > 0 {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, strings.Join(bad, ";")))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), *t, "value must be empty when `operator` is 'Exists'"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			errs = append(errs, ValidateTaintEffect(t.Effect, at.Child("effect"))...)
		}
	}
	return errs
}

// ValidateTaintEffect validates the effect of a taint or a toleration.
func ValidateTaintEffect(effect corev1.TaintEffect, path *field.Path) field.ErrorList {
	return fieldcheck.OneOf(effect, path, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

func validateNodeAffinity(a *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		errs = append(errs, ValidateNodeSelector(required, path.Child("requiredDuringSchedulingIgnoredDuringExecution"))...)
	}
	at := path.Child("preferredDuringSchedulingIgnoredDuringExecution")
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		term := &a.PreferredDuringSchedulingIgnoredDuringExecution[i]
		errs = append(errs, validateWeight(term.Weight, at.Index(i).Child("weight"))...)
		errs = append(errs, validateNodeTerm(&term.Preference, at.Index(i).Child("preference"))...)
	}
	return errs
}

// ValidateNodeSelector validates a selector that nodes must match.
func ValidateNodeSelector(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		errs = append(errs, field.Required(at, "must have at least one node selector term"))
	}
	for i := range s.NodeSelectorTerms {
		term := &s.NodeSelectorTerms[i]
		errs = append(errs, validateNodeTerm(term, at.Index(i))...)
		errs = append(errs, validateNodeValues(term, at.Index(i))...)
	}
	return errs
}

func validateNodeTerm(term *corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		errs = append(errs, validateNodeRequirement(&term.MatchExpressions[i], path.Child("matchExpressions").Index(i))...)
	}
	for i := range term.MatchFields {
		errs = append(errs, validateNodeField(&term.MatchFields[i], path.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateNodeRequirement(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return append(errs, metavalidation.ValidateLabelName(r.Key, path.Child("key"))...)
}

// validateNodeValues checks that the values are valid label values. As upstream,
// preferred terms are not checked.
func validateNodeValues(term *corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		values := path.Child("matchExpressions").Index(i).Child("values")
		for j, value := range term.MatchExpressions[i].Values {
			errs = append(errs, fieldcheck.Invalid(validation.IsValidLabelValue(value), values.Index(j), value)...)
		}
	}
	return errs
}

// validateNodeField validates a match on node fields; the only supported field is
// metadata.name.
func validateNodeField(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != "metadata.name" {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, value := range r.Values {
		errs = append(errs, fieldcheck.Invalid(apivalidation.NameIsDNSSubdomain(value, false), path.Child("values").Index(i), value)...)
	}
	return errs
}
