package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/expression"
	"podium/pkg/scheme"
)

func mutatingAdmissionPolicies(k *scheme.Kind, readers *paramReaders, c *expression.Compiler) *Kind {
	type policy = registration.MutatingAdmissionPolicy
	return Of[*policy]{
		Default: func(p *policy) {
			pointed(&p.Spec.FailurePolicy, registration.Fail)
			defaultMatchResources(p.Spec.MatchConstraints)
		},
		Prepare: func(ctx context.Context, _ Backend, new, old *policy) error {
			if old == nil || !same(new.Spec.ParamKind, old.Spec.ParamKind) {
				if err := readers.policy(ctx, k, new.Name, new.Spec.ParamKind); err != nil {
					return err
				}
			}
			revise(new, old, func(p *policy) any { return p.Spec })
			return nil
		},
		Validate: func(new, old *policy) field.ErrorList { return validateMutatingPolicy(c, new, old) },
		Columns: columns(number("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
			column("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"), ageColumn()),
		Row: func(p *policy, now time.Time) []any {
			return []any{p.Name, int64(len(p.Spec.Mutations)), paramKindCell(p.Spec.ParamKind), age(p.CreationTimestamp, now)}
		},
	}.Kind(k)
}

func mutatingAdmissionPolicyBindings(k *scheme.Kind, readers *paramReaders) *Kind {
	type binding = registration.MutatingAdmissionPolicyBinding
	return bindingKind(k, readers, "mutatingadmissionpolicies", func(b *binding) bound {
		return bound{b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, b.Spec}
	}, func(b *binding) field.ErrorList {
		return validateMutable(b.Spec.MatchResources, field.NewPath("spec", "matchResources"))
	})
}

func validateMutatingPolicy(c *expression.Compiler, new, old *registration.MutatingAdmissionPolicy) field.ErrorList {
	s, at := &new.Spec, field.NewPath("spec")
	check := &policyCheck{scope: c.NewScope(len(s.Variables) > 0), params: s.ParamKind != nil, known: map[string]bool{}}
	if old != nil {
		check.known = expressionsOf(old.Spec.MatchConditions)
		for i := range old.Spec.Mutations {
			_, text := mutationExpression(&old.Spec.Mutations[i])
			check.known[text] = true
		}
	}
	errs := validatePolicyHead(s.FailurePolicy, s.ParamKind, s.MatchConstraints, at)
	errs = append(errs, validateMutable(s.MatchConstraints, at.Child("matchConstraints"))...)
	errs = append(errs, validateConditions(c, s.MatchConditions, check.params, check.known, at.Child("matchConditions"))...)
	errs = append(errs, check.variables(s.Variables, at.Child("variables"))...)
	if len(s.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range s.Mutations {
		errs = append(errs, check.mutation(&s.Mutations[i], at.Child("mutations").Index(i))...)
	}
	if s.ReinvocationPolicy == "" {
		return append(errs, field.Required(at.Child("reinvocationPolicy"), ""))
	}
	return append(errs, oneOfIfSet(&s.ReinvocationPolicy, at.Child("reinvocationPolicy"), registration.IfNeededReinvocationPolicy, registration.NeverReinvocationPolicy)...)
}

// validateMutable refuses rules for DELETE, which has no object to change, and for
// CONNECT, whose options Podium does not change.
func validateMutable(m *registration.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range m.ResourceRules {
		for j, op := range m.ResourceRules[i].Operations {
			if op == registration.Delete || op == registration.Connect {
				errs = append(errs, field.Invalid(at.Child("resourceRules").Index(i).Child("operations").Index(j), op, fmt.Sprintf("mutating policies cannot match %s", op)))
			}
		}
	}
	return errs
}

// mutationExpression returns the expression of a mutation and the name of its
// field; the name is empty if the patch type is unknown.
func mutationExpression(m *registration.Mutation) (name, text string) {
	switch m.PatchType {
	case registration.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration != nil {
			text = m.ApplyConfiguration.Expression
		}
		return "applyConfiguration", text
	case registration.PatchTypeJSONPatch:
		if m.JSONPatch != nil {
			text = m.JSONPatch.Expression
		}
		return "jsonPatch", text
	}
	return "", ""
}

func (c *policyCheck) mutation(m *registration.Mutation, at *field.Path) field.ErrorList {
	if m.PatchType == "" {
		return field.ErrorList{field.Required(at.Child("patchType"), "")}
	}
	name, text := mutationExpression(m)
	if name == "" {
		return oneOfIfSet(&m.PatchType, at.Child("patchType"), registration.PatchTypeApplyConfiguration, registration.PatchTypeJSONPatch)
	}
	var errs field.ErrorList
	of := expression.ConfigurationType()
	if m.PatchType == registration.PatchTypeJSONPatch {
		of = expression.PatchType()
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(at.Child("applyConfiguration"), "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
		if m.JSONPatch == nil {
			return append(errs, field.Required(at.Child("jsonPatch"), "must be specified when patchType is JSONPatch"))
		}
	} else {
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(at.Child("jsonPatch"), "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
		if m.ApplyConfiguration == nil {
			return append(errs, field.Required(at.Child("applyConfiguration"), "must be specified when patchType is ApplyConfiguration"))
		}
	}
	at = at.Child(name, "expression")
	if strings.TrimSpace(text) == "" {
		return append(errs, field.Required(at, "expression is not specified"))
	}
	d := c.declared(true)
	d.Patch = true
	return append(errs, validateCompiled(c.scope.Compile(text, d, c.known[text], of), at)...)
}
