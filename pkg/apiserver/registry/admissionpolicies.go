package registry

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"podium/pkg/expression"
	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// Admission policies and their bindings: package admission/policies acts on
// them.

func validatingAdmissionPolicies(k *scheme.Kind, readers *paramReaders, c *expression.Compiler) *Kind {
	type policy = registration.ValidatingAdmissionPolicy
	l := lifecycle[*policy, registration.ValidatingAdmissionPolicySpec, registration.ValidatingAdmissionPolicyStatus]{
		parts: func(p *policy) (*registration.ValidatingAdmissionPolicySpec, *registration.ValidatingAdmissionPolicyStatus) {
			return &p.Spec, &p.Status
		},
	}
	return Of[*policy]{
		Default: func(p *policy) {
			pointed(&p.Spec.FailurePolicy, registration.Fail)
			defaultMatchResources(p.Spec.MatchConstraints)
		},
		Prepare: func(ctx context.Context, b Backend, new, old *policy) error {
			if old == nil || !same(new.Spec.ParamKind, old.Spec.ParamKind) {
				if err := readers.policy(ctx, k, new.Name, new.Spec.ParamKind); err != nil {
					return err
				}
			}
			return l.prepare(ctx, b, new, old)
		},
		Validate: func(new, old *policy) field.ErrorList { return validateValidatingPolicy(c, new, old) },
		Columns: columns(number("Validations", "Validations indicates the number of validation rules defined in this configuration"),
			column("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"), ageColumn()),
		Row: func(p *policy, now time.Time) []any {
			return []any{p.Name, int64(len(p.Spec.Validations)), paramKindCell(p.Spec.ParamKind), age(p.CreationTimestamp, now)}
		},
		Subresources: []*Subresource{l.status(k, nil, func(new, _ *policy) field.ErrorList { return validatePolicyStatus(&new.Status) })},
	}.Kind(k)
}

// same reports whether both are nil or point to equal values.
func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func paramKindCell(k *registration.ParamKind) string {
	if k == nil {
		return "<unset>"
	}
	return k.APIVersion + "/" + k.Kind
}

func paramRefCell(r *registration.ParamRef) string {
	switch {
	case r == nil:
		return "<unset>"
	case r.Selector != nil:
		return r.Namespace + "/" + metav1.FormatLabelSelector(r.Selector)
	case r.Namespace != "":
		return r.Namespace + "/" + r.Name
	}
	return "*/" + r.Name
}

func validatingAdmissionPolicyBindings(k *scheme.Kind, readers *paramReaders) *Kind {
	type binding = registration.ValidatingAdmissionPolicyBinding
	return bindingKind(k, readers, "validatingadmissionpolicies", func(b *binding) bound {
		return bound{b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, b.Spec}
	}, func(b *binding) field.ErrorList {
		return validateActions(b.Spec.ValidationActions, field.NewPath("spec", "validationActions"))
	})
}

// bound is what the bindings of both sorts of policies have in common.
type bound struct {
	policy string
	params *registration.ParamRef
	match  *registration.MatchResources
	spec   any
}

// bindingKind describes a kind of bindings to policies of a resource. more
// validates the rest.
func bindingKind[T scheme.Object](k *scheme.Kind, readers *paramReaders, policies string, of func(T) bound, more func(T) field.ErrorList) *Kind {
	return Of[T]{
		Default: func(obj T) { defaultMatchResources(of(obj).match) },
		Prepare: func(ctx context.Context, b Backend, new, old T) error {
			revise(new, old, func(obj T) any { return of(obj).spec })
			if !reflect.ValueOf(old).IsNil() && new.GetGeneration() == old.GetGeneration() {
				return nil
			}
			kind, err := paramKindOf(ctx, b, policies, of(new).policy)
			if err != nil {
				return err
			}
			return readers.binding(ctx, k, new.GetName(), of(new).params, kind)
		},
		Validate: func(new, _ T) field.ErrorList {
			b, at := of(new), field.NewPath("spec")
			var errs field.ErrorList
			if b.policy == "" {
				errs = append(errs, field.Required(at.Child("policyName"), ""))
			} else {
				errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(b.policy), at.Child("policyName"), b.policy)...)
			}
			errs = append(errs, validateParamRef(b.params, at.Child("paramRef"))...)
			errs = append(errs, validateMatchResources(b.match, at.Child("matchResouces"))...) // upstream's spelling
			return append(errs, more(new)...)
		},
		Columns: columns(column("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
			column("ParamRef", "ParamRef indicates the param resource which sets the configration param"), ageColumn()),
		Row: func(obj T, now time.Time) []any {
			b := of(obj)
			return []any{obj.GetName(), b.policy, paramRefCell(b.params), age(obj.GetCreationTimestamp(), now)}
		},
	}.Kind(k)
}

// paramKindOf returns the paramKind of a policy, nil if it has none or does not
// exist.
func paramKindOf(ctx context.Context, b Backend, resource, name string) (*registration.ParamKind, error) {
	obj, err := b.Get(ctx, registration.SchemeGroupVersion.WithResource(resource), "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	switch p := obj.(type) {
	case *registration.ValidatingAdmissionPolicy:
		return p.Spec.ParamKind, err
	case *registration.MutatingAdmissionPolicy:
		return p.Spec.ParamKind, err
	}
	return nil, err
}

func validateActions(actions []registration.ValidationAction, at *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(at, "at least one validation action is required")}
	}
	var errs field.ErrorList
	for i, a := range actions {
		errs = append(errs, oneOfIfSet(&a, at.Index(i), registration.Audit, registration.Deny, registration.Warn)...)
		if slices.Contains(actions[:i], a) {
			errs = append(errs, field.Duplicate(at.Index(i), a))
		}
	}
	if slices.Contains(actions, registration.Deny) && slices.Contains(actions, registration.Warn) {
		errs = append(errs, field.Invalid(at, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

func validateParamRef(r *registration.ParamRef, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	const exclusive = "name and selector are mutually exclusive"
	var errs field.ErrorList
	if r.Name != "" {
		errs = append(errs, fieldcheck.Invalid(path.ValidatePathSegmentName(r.Name, false), at.Child("name"), r.Name)...)
	}
	if r.Selector != nil {
		errs = append(errs, validateStrictSelector(r.Selector, at.Child("selector"))...)
	}
	switch {
	case r.Name != "" && r.Selector != nil:
		errs = append(errs, field.Forbidden(at.Child("name"), exclusive), field.Forbidden(at.Child("selector"), exclusive))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	}
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, oneOfIfSet(r.ParameterNotFoundAction, at.Child("parameterNotFoundAction"), registration.DenyAction, registration.AllowAction)...)
}

func validateParamKind(k *registration.ParamKind, at *field.Path) field.ErrorList {
	if k == nil {
		return nil
	}
	var errs field.ErrorList
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(at.Child("apiVersion"), ""))
	case err != nil:
		errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, err.Error()))
	case gv.Version == "":
		errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, "version must be specified"))
	default:
		if gv.Group != "" {
			errs = append(errs, joined(validation.IsDNS1123Subdomain(gv.Group), "", at.Child("apiVersion"), gv.Group)...)
		}
		errs = append(errs, joined(validation.IsDNS1035Label(gv.Version), "", at.Child("apiVersion"), gv.Version)...)
	}
	if k.Kind == "" {
		return append(errs, field.Required(at.Child("kind"), ""))
	}
	return append(errs, joined(validation.IsDNS1035Label(strings.ToLower(k.Kind)), "may have mixed case, but should otherwise match: ", at.Child("kind"), k.Kind)...)
}

// joined returns one error with all messages, nil if there are none.
func joined(messages []string, prefix string, at *field.Path, value string) field.ErrorList {
	if len(messages) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, value, prefix+strings.Join(messages, ","))}
}

// policyCheck validates the expressions of a policy.
type policyCheck struct {
	scope  *expression.Scope
	known  map[string]bool // expressions of the stored policy
	params bool
}

func (c *policyCheck) declared(authorizer bool) expression.Declared {
	return expression.Declared{Params: c.params, Authorizer: authorizer}
}

// validatePolicyHead validates what both sorts of policies have.
func validatePolicyHead(failure *registration.FailurePolicyType, params *registration.ParamKind, m *registration.MatchResources, at *field.Path) field.ErrorList {
	errs := requiredAnd(failure, at.Child("failurePolicy"), validateFailurePolicy)
	errs = append(errs, validateParamKind(params, at.Child("paramKind"))...)
	if m == nil {
		return append(errs, field.Required(at.Child("matchConstraints"), ""))
	}
	errs = append(errs, validateMatchResources(m, at.Child("matchConstraints"))...)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("matchConstraints", "resourceRules"), ""))
	}
	return errs
}

func validateValidatingPolicy(c *expression.Compiler, new, old *registration.ValidatingAdmissionPolicy) field.ErrorList {
	s, at := &new.Spec, field.NewPath("spec")
	check := &policyCheck{scope: c.NewScope(len(s.Variables) > 0), params: s.ParamKind != nil, known: map[string]bool{}}
	if old != nil {
		check.known = expressionsOf(old.Spec.MatchConditions)
		for _, v := range old.Spec.Validations {
			check.known[v.Expression], check.known[v.MessageExpression] = true, true
		}
		for _, a := range old.Spec.AuditAnnotations {
			check.known[a.ValueExpression] = true
		}
	}
	errs := validatePolicyHead(s.FailurePolicy, s.ParamKind, s.MatchConstraints, at)
	errs = append(errs, validateConditions(c, s.MatchConditions, check.params, check.known, at.Child("matchConditions"))...)
	errs = append(errs, check.variables(s.Variables, at.Child("variables"))...)
	if len(s.Validations) == 0 && len(s.AuditAnnotations) == 0 {
		const either = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(at.Child("validations"), either), field.Required(at.Child("auditAnnotations"), either))
	}
	for i := range s.Validations {
		errs = append(errs, check.validation(&s.Validations[i], at.Child("validations").Index(i))...)
	}
	return append(errs, check.annotations(new.Name, s.AuditAnnotations, at.Child("auditAnnotations"))...)
}

func (c *policyCheck) variables(all []registration.Variable, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range all {
		at := at.Index(i)
		switch {
		case strings.TrimSpace(v.Name) == "":
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		case !isCELName(v.Name):
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "name is not a valid CEL identifier"))
		}
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
			continue
		}
		p := c.scope.Define(v.Name, v.Expression, c.declared(true), c.known[v.Expression])
		errs = append(errs, validateCompiled(p, at.Child("expression"))...)
	}
	return errs
}

// isCELName reports whether a name is an identifier of CEL.
func isCELName(name string) bool {
	reserved := []string{"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
		"loop", "package", "namespace", "return", "var", "void", "while"}
	ok, _ := regexp.MatchString("^[_a-zA-Z][_a-zA-Z0-9]*$", name)
	return ok && !slices.Contains(reserved, name)
}

func (c *policyCheck) validation(v *registration.Validation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	} else {
		p := c.scope.Compile(v.Expression, c.declared(true), c.known[v.Expression], expression.ConditionType())
		errs = append(errs, validateCompiled(p, at.Child("expression"))...)
	}
	switch {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	default:
		p := c.scope.Compile(v.MessageExpression, c.declared(false), c.known[v.MessageExpression], expression.MessageType())
		errs = append(errs, validateCompiled(p, at.Child("messageExpression"))...)
	}
	switch trimmed := strings.TrimSpace(v.Message); {
	case v.Message != "" && trimmed == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must be non-empty if specified"))
	case strings.ContainsAny(trimmed, "\n\r"):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must not contain line breaks"))
	}
	return append(errs, oneOfIfSet(v.Reason, at.Child("reason"), metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)...)
}

const (
	maxAuditAnnotations = 20
	maxAuditExpression  = 5 << 10 // bytes
)

func (c *policyCheck) annotations(policy string, all []registration.AuditAnnotation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(all) > maxAuditAnnotations {
		return append(errs, field.Invalid(at, len(all), fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := map[string]bool{}
	for i, a := range all {
		at := at.Index(i)
		key := policy + "/" + a.Key
		errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(key), at.Child("key"), key)...)
		switch text := strings.TrimSpace(a.ValueExpression); {
		case text == "":
			errs = append(errs, field.Required(at.Child("valueExpression"), "valueExpression is not specified"))
		case len(text) > maxAuditExpression:
			errs = append(errs, field.Required(at.Child("valueExpression"), fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression)))
		default:
			p := c.scope.Compile(text, c.declared(true), c.known[a.ValueExpression], expression.AnnotationTypes()...)
			errs = append(errs, validateCompiled(p, at.Child("valueExpression"))...)
		}
		if keys[a.Key] {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		keys[a.Key] = true
	}
	return errs
}

func validatePolicyStatus(s *registration.ValidatingAdmissionPolicyStatus) field.ErrorList {
	at := field.NewPath("status")
	errs := metavalidation.ValidateConditions(s.Conditions, at.Child("conditions"))
	if s.TypeChecking == nil {
		return errs
	}
	for i, w := range s.TypeChecking.ExpressionWarnings {
		at := at.Child("typeChecking", "expressionWarnings").Index(i)
		if w.Warning == "" {
			errs = append(errs, field.Required(at.Child("warning"), ""))
		}
		ref := strings.TrimSpace(w.FieldRef)
		if ref == "" {
			errs = append(errs, field.Required(at.Child("fieldRef"), ""))
		} else if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
			errs = append(errs, field.Invalid(at.Child("fieldRef"), ref, fmt.Sprintf("invalid JSONPath: %v", err)))
		}
	}
	return errs
}
