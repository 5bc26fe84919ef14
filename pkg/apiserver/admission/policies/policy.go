package policies

import (
	"context"
	"fmt"

	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/match"
	"podium/pkg/expression"
	"podium/pkg/scheme"
)

// policy is a compiled policy of either sort. It is immutable. A is the sort of
// its actions: what it does about a request that matches.
type policy[A any] struct {
	name       string
	params     *registration.ParamKind
	ignores    bool // requests pass if the policy cannot be evaluated
	criteria   *match.Criteria
	scope      *expression.Scope
	conditions []*expression.Program
	actions    A
	broken     error // why the policy cannot be evaluated; nil: it can
}

// head is the fields that both sorts of policies have.
type head struct {
	name       string
	params     *registration.ParamKind
	failure    *registration.FailurePolicyType
	match      *registration.MatchResources
	variables  []registration.Variable
	conditions []registration.MatchCondition
}

// newPolicy compiles what both sorts of policies have.
func newPolicy[A any](c *expression.Compiler, h head) *policy[A] {
	p := &policy[A]{name: h.name, params: h.params, scope: c.NewScope(len(h.variables) > 0)}
	p.ignores = h.failure != nil && *h.failure == registration.Ignore
	p.criteria, p.broken = match.ForPolicy(h.match, false)
	for _, v := range h.variables {
		p.scope.Define(v.Name, v.Expression, p.declared(), true)
	}
	for _, m := range h.conditions {
		p.conditions = append(p.conditions, p.scope.Compile(m.Expression, p.declared(), true, expression.ConditionType()))
	}
	return p
}

// declared returns the variables that the expressions of the policy may use.
func (p *policy[A]) declared() expression.Declared {
	return expression.Declared{Params: p.params != nil, Authorizer: true}
}

// binding is a compiled binding of either sort.
type binding struct {
	name     string
	policy   string
	params   *registration.ParamRef
	criteria *match.Criteria
	enforce  []registration.ValidationAction // of a validating policy
	broken   error
}

func newBinding(name, policy string, params *registration.ParamRef, m *registration.MatchResources) *binding {
	b := &binding{name: name, policy: policy, params: params}
	b.criteria, b.broken = match.ForPolicy(m, true)
	return b
}

// bindingsOf returns the bindings among objects, by their policies.
func bindingsOf(objects []scheme.Object) map[string][]*binding {
	out := map[string][]*binding{}
	for _, obj := range objects {
		var b *binding
		switch of := obj.(type) {
		case *registration.ValidatingAdmissionPolicyBinding:
			b = newBinding(of.Name, of.Spec.PolicyName, of.Spec.ParamRef, of.Spec.MatchResources)
			b.enforce = of.Spec.ValidationActions
		case *registration.MutatingAdmissionPolicyBinding:
			b = newBinding(of.Name, of.Spec.PolicyName, of.Spec.ParamRef, of.Spec.MatchResources)
		default:
			continue
		}
		out[b.policy] = append(out[b.policy], b)
	}
	return out
}

// plugin is what the two plugins have in common.
type plugin[A any] struct {
	admission.Host
	phase    string
	policies *admission.Derived[[]*policy[A]]
	bindings *admission.Derived[map[string][]*binding]
}

// newPlugin returns a plugin for the policies and bindings of two resources.
// compile returns the policy of an object. Policies that have not changed are
// not compiled again.
func newPlugin[A any](h admission.Host, phase, policies, bindings string, compile func(*expression.Compiler, scheme.Object) *policy[A]) *plugin[A] {
	if h.Series == nil {
		h.Series = admission.NewSeries(nil)
	}
	compiler, last := expression.NewCompiler(), map[string]*policy[A]{}
	all := func(objects []scheme.Object) (out []*policy[A]) {
		next := map[string]*policy[A]{}
		for _, obj := range objects {
			key := string(obj.GetUID()) + "/" + obj.GetResourceVersion()
			p := last[key]
			if p == nil {
				p = compile(compiler, obj)
			}
			next[key] = p
			out = append(out, p)
		}
		last = next
		return out
	}
	return &plugin[A]{Host: h, phase: phase,
		policies: admission.Derive(h.Objects, registration.SchemeGroupVersion.WithResource(policies), all),
		bindings: admission.Derive(h.Objects, registration.SchemeGroupVersion.WithResource(bindings), bindingsOf),
	}
}

// invocation is a policy, a binding of it that matches, and its parameters.
type invocation[A any] struct {
	*policy[A]
	*binding
	form   *admission.Form
	params []map[string]any // an evaluation each; a nil one has no parameters
}

// failed is called for a policy, or a binding unless it is nil, that cannot be
// evaluated, unless the policy ignores that.
type failed[A any] func(p *policy[A], b *binding, err error)

// invocations returns what is to be evaluated for a request. a may be changed
// between two of them.
func (p *plugin[A]) invocations(ctx context.Context, a *admission.Attributes, fail failed[A]) ([]invocation[A], error) {
	if match.Exempt(a) {
		return nil, nil
	}
	policies, err := p.policies.Get(ctx)
	if err != nil {
		return nil, admission.Forbidden(a, "not yet ready to handle request")
	}
	if len(policies) == 0 {
		return nil, nil
	}
	bindings, err := p.bindings.Get(ctx)
	if err != nil {
		return nil, admission.Forbidden(a, "not yet ready to handle request")
	}
	var out []invocation[A]
	for _, policy := range policies {
		if len(bindings[policy.name]) == 0 {
			continue
		}
		note := func(b *binding, what string, err error) {
			if !policy.ignores {
				fail(policy, b, fmt.Errorf("failed to configure %s: %w", what, err))
			}
		}
		if policy.criteria == nil {
			note(nil, "policy", policy.broken)
			continue
		}
		form, err := policy.criteria.Match(ctx, p.Objects, a)
		if err != nil {
			note(nil, "policy", err)
			continue
		}
		if form == nil {
			continue
		}
		for _, b := range bindings[policy.name] {
			params, matches, err := p.bound(ctx, a, policy.params, b)
			if err != nil {
				note(b, "binding", err)
			} else if matches && len(params) > 0 {
				out = append(out, invocation[A]{policy, b, form, params})
			}
		}
	}
	return out, nil
}

// bound reports whether a binding matches a request, and returns the parameters
// that it refers to.
func (p *plugin[A]) bound(ctx context.Context, a *admission.Attributes, kind *registration.ParamKind, b *binding) (params []map[string]any, matches bool, err error) {
	if b.criteria == nil {
		return nil, false, b.broken
	}
	form, err := b.criteria.Match(ctx, p.Objects, a)
	if form == nil || err != nil {
		return nil, false, err
	}
	params, err = paramsOf(ctx, p.Objects, kind, b.params, a.Namespace)
	return params, true, err
}

// namespaceOf returns the Namespace of a request as expressions see it, nil for
// a cluster-scoped object.
func (p *plugin[A]) namespaceOf(ctx context.Context, a *admission.Attributes) (map[string]any, error) {
	if a.Namespace == "" {
		return nil, nil
	}
	ns, err := admission.Namespace(ctx, p.Objects, a.Namespace)
	if err != nil {
		return nil, err
	}
	if ns == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), a.Namespace)
	}
	shown := *ns
	shown.ManagedFields, shown.OwnerReferences, shown.SelfLink = nil, nil, ""
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&shown)
}

// input returns the values of the variables for an evaluation.
func (p *plugin[A]) input(ctx context.Context, a *admission.Attributes, in *admission.Form, params map[string]any) (*expression.Input, error) {
	input, err := match.Input(a, in, p.Authorizer)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	input.Params = params
	input.Namespace, err = p.namespaceOf(ctx, a)
	return input, err
}

// applies evaluates the match conditions of an invocation. With an error, the
// failure policy decides.
func (p *plugin[A]) applies(ctx context.Context, i *invocation[A], a *admission.Attributes, input *expression.Input) (bool, error) {
	if len(i.conditions) == 0 {
		return true, nil
	}
	began := p.Now()
	no, err := i.scope.Begin(ctx, input, expression.ConditionsBudget).Conditions(i.conditions)
	p.Series.ConditionsEvaluated(a, i.policy.name, "policy", p.phase, p.Now().Sub(began), no >= 0, err)
	return no < 0 && err == nil, err
}
