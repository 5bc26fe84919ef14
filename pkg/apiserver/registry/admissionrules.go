package registry

import (
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/cel"

	"podium/pkg/expression"
	"podium/pkg/fieldcheck"
)

// What webhooks and admission policies have in common: which requests they
// match.

func defaultRule(r *registration.RuleWithOperations) {
	if r.Scope == nil {
		r.Scope = new(registration.ScopeType)
		*r.Scope = registration.AllScopes
	}
}

// pointed sets *p to a pointer to value unless it is set.
func pointed[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

func defaultMatchResources(m *registration.MatchResources) {
	if m == nil {
		return
	}
	pointed(&m.MatchPolicy, registration.Equivalent)
	pointed(&m.NamespaceSelector, metav1.LabelSelector{})
	pointed(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]registration.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			defaultRule(&rules[i].RuleWithOperations)
		}
	}
}

// oneOfIfSet returns an error if a value is set that is not among valid.
func oneOfIfSet[T ~string](value *T, at *field.Path, valid ...T) field.ErrorList {
	if value == nil || slices.Contains(valid, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *value, valid)}
}

func validateFailurePolicy(p *registration.FailurePolicyType, at *field.Path) field.ErrorList {
	return oneOfIfSet(p, at, registration.Fail, registration.Ignore)
}

func validateMatchPolicy(p *registration.MatchPolicyType, at *field.Path) field.ErrorList {
	return oneOfIfSet(p, at, registration.Equivalent, registration.Exact)
}

func validateOperationRule(r *registration.RuleWithOperations, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(at.Child("operations"), ""))
	}
	errs = append(errs, validateWildcardAlone(r.Operations, at.Child("operations"), "operations")...)
	for i, op := range r.Operations {
		errs = append(errs, oneOfIfSet(&op, at.Child("operations").Index(i),
			registration.OperationAll, registration.Connect, registration.Create, registration.Delete, registration.Update)...)
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), ""))
	}
	errs = append(errs, validateWildcardAlone(r.APIGroups, at.Child("apiGroups"), "API groups")...)
	if len(r.APIVersions) == 0 {
		errs = append(errs, field.Required(at.Child("apiVersions"), ""))
	}
	errs = append(errs, validateWildcardAlone(r.APIVersions, at.Child("apiVersions"), "API versions")...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateRuleResources(r.Resources, at.Child("resources"))...)
	return append(errs, oneOfIfSet(r.Scope, at.Child("scope"), registration.AllScopes, registration.ClusterScope, registration.NamespacedScope)...)
}

// validateWildcardAlone returns an error if a list has the wildcard and others.
func validateWildcardAlone[T ~string](list []T, at *field.Path, what string) field.ErrorList {
	if len(list) > 1 && slices.Contains(list, "*") {
		return field.ErrorList{field.Invalid(at, list, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

// validateRuleResources validates patterns of resources and subresources.
func validateRuleResources(patterns []string, at *field.Path) field.ErrorList {
	if len(patterns) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	allOf, everywhere := map[string]bool{}, map[string]bool{} // resources r of r/*, and subresources s of */s, so far
	plain := false
	for i, p := range patterns {
		if p == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		}
		resource, sub, cut := strings.Cut(p, "/")
		if !cut {
			plain = p != "*"
			continue
		}
		if allOf[resource] {
			errs = append(errs, field.Invalid(at.Index(i), p, "if '"+resource+"/*' is present, must not specify "+p))
		}
		if everywhere[sub] {
			errs = append(errs, field.Invalid(at.Index(i), p, "if '*/"+sub+"' is present, must not specify "+p))
		}
		allOf[resource] = allOf[resource] || sub == "*"
		everywhere[sub] = everywhere[sub] || resource == "*"
	}
	if len(patterns) > 1 && slices.Contains(patterns, "*/*") {
		errs = append(errs, field.Invalid(at, patterns, "if '*/*' is present, must not specify other resources"))
	}
	if plain && slices.Contains(patterns, "*") {
		errs = append(errs, field.Invalid(at, patterns, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// validateMatchResources validates what a policy or a binding matches.
func validateMatchResources(m *registration.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	errs := requiredAnd(m.MatchPolicy, at.Child("matchPolicy"), validateMatchPolicy)
	errs = append(errs, requiredAnd(m.NamespaceSelector, at.Child("namespaceSelector"), validateStrictSelector)...)
	errs = append(errs, requiredAnd(m.ObjectSelector, at.Child("objectSelector"), validateStrictSelector)...)
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

// requiredAnd returns an error if value is nil, and else those of validate.
func requiredAnd[T any](value *T, at *field.Path, validate func(*T, *field.Path) field.ErrorList) field.ErrorList {
	if value == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	return validate(value, at)
}

func validateStrictSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

func validateNamedRule(r *registration.NamedRuleWithOperations, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range r.ResourceNames {
		at := at.Child("resourceNames").Index(i)
		errs = append(errs, fieldcheck.Invalid(path.ValidatePathSegmentName(name, false), at, name)...)
		if slices.Contains(r.ResourceNames[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
	}
	return append(errs, validateOperationRule(&r.RuleWithOperations, at)...)
}

// maxConditions is the maximum number of match conditions.
const maxConditions = 64

// validateConditions validates match conditions. known are the expressions that
// the stored object has already.
func validateConditions(c *expression.Compiler, conditions []registration.MatchCondition, params bool, known map[string]bool, at *field.Path) field.ErrorList {
	if len(conditions) > maxConditions {
		return field.ErrorList{field.TooMany(at, len(conditions), maxConditions)}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i, m := range conditions {
		at := at.Index(i)
		if text := strings.TrimSpace(m.Expression); text == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			p := c.Compile(text, expression.Declared{Params: params, Authorizer: true}, known[m.Expression], cel.BoolType)
			errs = append(errs, validateCompiled(p, at.Child("expression"))...)
		}
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(m.Name), at.Child("name"), m.Name)...)
		if names[m.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		names[m.Name] = true
	}
	return errs
}

// validateCompiled returns the error of an expression that does not compile.
func validateCompiled(p *expression.Program, at *field.Path) field.ErrorList {
	switch {
	case p.Error == nil:
		return nil
	case errors.Is(p.Error, apicel.ErrInternal):
		return field.ErrorList{field.InternalError(at, p.Error)}
	}
	return field.ErrorList{field.Invalid(at, p.Text, p.Error.Detail)}
}

// expressionsOf returns the expressions of match conditions, to tell new ones
// from stored ones.
func expressionsOf(lists ...[]registration.MatchCondition) map[string]bool {
	known := map[string]bool{}
	for _, list := range lists {
		for _, m := range list {
			known[m.Expression] = true
		}
	}
	return known
}
