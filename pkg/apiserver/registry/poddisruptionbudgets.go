package registry

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

func podDisruptionBudgets(k *scheme.Kind, _ Config) *Kind {
	life := lifecycle[*policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetSpec, policyv1.PodDisruptionBudgetStatus]{
		parts: func(p *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudgetSpec, *policyv1.PodDisruptionBudgetStatus) {
			return &p.Spec, &p.Status
		},
	}
	return Of[*policyv1.PodDisruptionBudget]{
		Prepare:      life.prepare,
		Validate:     validatePodDisruptionBudget,
		ValidateName: pathvalidation.ValidatePathSegmentName,
		Columns:      podDisruptionBudgetColumns(),
		Row:          podDisruptionBudgetRow,
		Subresources: []*Subresource{life.status(k, nil, validatePodDisruptionBudgetStatus)},
	}.Kind(k)
}

func validatePodDisruptionBudget(new, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	path := field.NewPath("spec")
	spec := &new.Spec
	var errs field.ErrorList
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, *spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	for _, f := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", spec.MinAvailable}, {"maxUnavailable", spec.MaxUnavailable}} {
		errs = append(errs, validateShare(f.value, path.Child(f.name))...)
		errs = append(errs, atMostAll(f.value, path.Child(f.name))...)
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	if p := spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, fieldcheck.Supported(*p, path.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func validatePodDisruptionBudgetStatus(new, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	path := field.NewPath("status")
	s := &new.Status
	return append(metavalidation.ValidateConditions(s.Conditions, path.Child("conditions")),
		validateNonnegative(path, count{"disruptionsAllowed", s.DisruptionsAllowed}, count{"currentHealthy", s.CurrentHealthy},
			count{"desiredHealthy", s.DesiredHealthy}, count{"expectedPods", s.ExpectedPods})...)
}

func podDisruptionBudgetColumns() []metav1.TableColumnDefinition {
	return columns(
		column("Min Available", "The minimum number of pods that must be available."),
		column("Max Unavailable", "The maximum number of pods that may be unavailable."),
		number("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
		ageColumn(),
	)
}

func podDisruptionBudgetRow(p *policyv1.PodDisruptionBudget, now time.Time) []any {
	share := func(v *intstr.IntOrString) string {
		if v == nil {
			return "N/A"
		}
		return v.String()
	}
	return []any{p.Name, share(p.Spec.MinAvailable), share(p.Spec.MaxUnavailable), int64(p.Status.DisruptionsAllowed), age(p.CreationTimestamp, now)}
}
