package registry

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

// Roles are sets of permissions, in their namespace or cluster-wide.

// validateRBACName validates the name of a role or binding, which may have colons.
func validateRBACName(name string, _ bool) []string {
	return pathvalidation.IsValidPathSegmentName(name)
}

func createdColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]}
}

func createdRow(m *metav1.ObjectMeta) []any {
	return []any{m.Name, m.CreationTimestamp.UTC().Format(time.RFC3339)}
}

func namespacedRoles(k *scheme.Kind, cfg Config) *Kind {
	return Of[*rbacv1.Role]{
		Prepare:                  cfg.prepareRole,
		ValidateName:             validateRBACName,
		Validate:                 func(new, _ *rbacv1.Role) field.ErrorList { return validateRules(new.Rules, true) },
		Columns:                  columns(createdColumn()),
		Row:                      func(r *rbacv1.Role, _ time.Time) []any { return createdRow(&r.ObjectMeta) },
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func clusterRoles(k *scheme.Kind, cfg Config) *Kind {
	return Of[*rbacv1.ClusterRole]{
		Prepare:                  cfg.prepareClusterRole,
		ValidateName:             validateRBACName,
		Validate:                 validateClusterRole,
		Columns:                  columns(createdColumn()),
		Row:                      func(r *rbacv1.ClusterRole, _ time.Time) []any { return createdRow(&r.ObjectMeta) },
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func validateClusterRole(new, _ *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(new.Rules, false)
	if new.AggregationRule == nil {
		return errs
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(new.AggregationRule.ClusterRoleSelectors) == 0 {
		return append(errs, field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range new.AggregationRule.ClusterRoleSelectors {
		s, at := &new.AggregationRule.ClusterRoleSelectors[i], path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)...)
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			errs = append(errs, field.Invalid(at, *s, "invalid label selector."))
		}
	}
	return errs
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, validateRule(&rules[i], namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

// validateRule checks that a rule applies either to resources or to non-resource
// URLs.
func validateRule(r *rbacv1.PolicyRule, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Verbs) == 0 {
		errs = append(errs, field.Required(path.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(r.NonResourceURLs) > 0 {
		at := path.Child("nonResourceURLs")
		if namespaced {
			errs = append(errs, field.Invalid(at, r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(at, r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}
