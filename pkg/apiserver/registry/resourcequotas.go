package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/quota"
	"podium/pkg/scheme"
)

// resourceQuotas limit what a namespace may use. The admission plugin ResourceQuota
// enforces them.
func resourceQuotas(k *scheme.Kind, _ Config) *Kind {
	return Of[*corev1.ResourceQuota]{
		Default: func(q *corev1.ResourceQuota) {
			for _, list := range []corev1.ResourceList{q.Spec.Hard, q.Status.Hard, q.Status.Used} {
				podspec.RoundUp(list)
			}
		},
		Prepare:  prepareResourceQuota,
		Validate: validateResourceQuota,
		Columns: columns(
			column("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
			column("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."),
			ageColumn(),
		),
		Row:                      resourceQuotaRow,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		Subresources:             []*Subresource{part(k, "status", func(new, old *corev1.ResourceQuota) { new.Spec = old.Spec }, validateResourceQuotaStatus)},
	}.Kind(k)
}

func prepareResourceQuota(_ context.Context, _ Backend, obj, old *corev1.ResourceQuota) error {
	obj.Status = corev1.ResourceQuotaStatus{}
	if old != nil {
		obj.Status = old.Status
	}
	return nil
}

func resourceQuotaRow(q *corev1.ResourceQuota, now time.Time) []any {
	var requests, limits []string
	for _, name := range podspec.SortedNames(q.Status.Hard) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(string(name), "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), age(q.CreationTimestamp, now)}
}

func validateResourceQuota(new, old *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateQuotaList(new.Spec.Hard, path.Child("hard"))
	errs = append(errs, validateQuotaScopes(&new.Spec, path.Child("scopes"))...)
	errs = append(errs, validateScopeSelector(&new.Spec, path.Child("scopeSelector", "matchExpressions"))...)
	if old != nil && !sets.New(old.Spec.Scopes...).Equal(sets.New(new.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(path.Child("scopes"), new.Spec.Scopes, "field is immutable"))
	}
	return errs
}

func validateResourceQuotaStatus(new, _ *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("status")
	return append(validateQuotaList(new.Status.Hard, path.Child("hard")), validateQuotaList(new.Status.Used, path.Child("used"))...)
}

// validateQuotaList validates quantities by resource in a quota.
func validateQuotaList(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range podspec.SortedNames(list) {
		q, at := list[name], path.Key(string(name))
		errs = append(errs, validateStandardName(name, at)...)
		if !strings.Contains(string(name), "/") && !quota.Standard(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
		}
		if quota.Integer(name) && q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
		}
	}
	return errs
}

// validateStandardName validates the name of any resource: one of Kubernetes, or a
// qualified one.
func validateStandardName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := fieldcheck.Invalid(validation.IsQualifiedName(string(name)), path, name)
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !quota.Standard(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.Invalid(path, name, "must be a standard resource type or fully qualified"))
	}
	return errs
}

// validateQuotaScopes validates spec.scopes.
func validateQuotaScopes(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range spec.Scopes {
		if !quota.KnownScope(scope) {
			errs = append(errs, field.Invalid(path, spec.Scopes, "unsupported scope"))
		}
		errs = append(errs, validateScoped(spec, scope, path, spec.Scopes)...)
	}
	return append(errs, validateScopePairs(spec, sets.New(spec.Scopes...), path)...)
}

// validateScopeSelector validates spec.scopeSelector.
func validateScopeSelector(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	if spec.ScopeSelector == nil {
		return nil
	}
	var errs field.ErrorList
	scopes := sets.Set[corev1.ResourceQuotaScope]{}
	for _, r := range spec.ScopeSelector.MatchExpressions {
		if !quota.KnownScope(r.ScopeName) {
			errs = append(errs, field.Invalid(path.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		errs = append(errs, validateScoped(spec, r.ScopeName, path, spec.ScopeSelector)...)
		errs = append(errs, validateScopeRequirement(r, path)...)
		scopes.Insert(r.ScopeName)
	}
	return append(errs, validateScopePairs(spec, scopes, path)...)
}

// validateScopeRequirement validates the operator and the values of a requirement.
func validateScopeRequirement(r corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	classes := r.ScopeName == corev1.ResourceQuotaScopePriorityClass || r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
	if quota.KnownScope(r.ScopeName) && !classes && r.Operator != corev1.ScopeSelectorOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator,
			"must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) != 0 {
			errs = append(errs, field.Invalid(path.Child("values"), r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}

// validateScoped returns an error at path for each resource of the quota that a
// scope cannot select.
func validateScoped(spec *corev1.ResourceQuotaSpec, scope corev1.ResourceQuotaScope, path *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	for _, name := range podspec.SortedNames(spec.Hard) {
		if quota.Standard(name) && !quota.ScopeApplies(scope, name) {
			errs = append(errs, field.Invalid(path, value, "unsupported scope applied to resource"))
		}
	}
	return errs
}

// validateScopePairs returns an error for each pair of scopes that excludes all pods.
func validateScopePairs(spec *corev1.ResourceQuotaSpec, scopes sets.Set[corev1.ResourceQuotaScope], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range [][]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if scopes.HasAll(pair...) {
			errs = append(errs, field.Invalid(path, slices.Clone(spec.Scopes), "conflicting scopes"))
		}
	}
	return errs
}
