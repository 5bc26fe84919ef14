package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func validateAffinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		errs = append(errs, validateNodeAffinity(n, path.Child("nodeAffinity"))...)
	}
	if p := a.PodAffinity; p != nil {
		at := path.Child("podAffinity")
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(required))...)
		errs = append(errs, validatePodPreferences(p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child(preferred))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		at := path.Child("podAntiAffinity")
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(required))...)
		errs = append(errs, validatePodPreferences(p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child(preferred))...)
	}
	return errs
}

func validatePodTerms(terms []corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range terms {
		errs = append(errs, validatePodTerm(&terms[i], path.Index(i))...)
	}
	return errs
}

func validatePodPreferences(terms []corev1.WeightedPodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range terms {
		at := path.Index(i)
		errs = append(errs, validateWeight(terms[i].Weight, at.Child("weight"))...)
		errs = append(errs, validatePodTerm(&terms[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func validateWeight(weight int32, path *field.Path) field.ErrorList {
	if weight < 1 || weight > 100 {
		return field.ErrorList{field.Invalid(path, weight, "must be in the range 1-100")}
	}
	return nil
}

func validatePodTerm(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	strict := metavalidation.LabelSelectorValidationOptions{}
	errs := metavalidation.ValidateLabelSelector(t.LabelSelector, strict, path.Child("labelSelector"))
	errs = append(errs, metavalidation.ValidateLabelSelector(t.NamespaceSelector, strict, path.Child("namespaceSelector"))...)
	for _, name := range t.Namespaces {
		errs = append(errs, fieldcheck.Invalid(apivalidation.ValidateNamespaceName(name, false), path.Child("namespace"), name)...)
	}
	match := path.Child("matchLabelKeys")
	errs = append(errs, validateLabelKeys(t.MatchLabelKeys, t.LabelSelector, match)...)
	errs = append(errs, validateLabelKeys(t.MismatchLabelKeys, t.LabelSelector, path.Child("mismatchLabelKeys"))...)
	mismatch := sets.New(t.MismatchLabelKeys...)
	for i, key := range t.MatchLabelKeys {
		if mismatch.Has(key) {
			errs = append(errs, field.Invalid(match.Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	topology := path.Child("topologyKey")
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(topology, "can not be empty"))
	}
	return append(errs, metavalidation.ValidateLabelName(t.TopologyKey, topology)...)
}

// validateLabelKeys validates matchLabelKeys and mismatchLabelKeys, which require a
// label selector.
func validateLabelKeys(keys []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if len(keys) > 0 && selector == nil {
		return field.ErrorList{field.Forbidden(path, "must not be specified when labelSelector is not set")}
	}
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, metavalidation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}
