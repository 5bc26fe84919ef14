package policystatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/cel"

	"podium/pkg/expression"
)

// maxKinds is how many resources of a policy are checked, as upstream.
const maxKinds = 10

// check compiles the expressions of a policy for each kind that it names. Kinds that are
// not served are skipped. An error means that the API could not be read.
func check(ctx context.Context, api source, p *policy) ([]registration.ExpressionWarning, error) {
	scopes, err := scopesOf(ctx, &documents{api: api}, &p.Spec)
	if err != nil {
		return nil, err
	}
	var out []registration.ExpressionWarning
	warn := func(at *field.Path, text string) {
		if text == "" {
			return
		}
		var problems []string
		for _, s := range scopes {
			if problem := s.problem(text); problem != "" {
				problems = append(problems, problem)
			}
		}
		if len(problems) > 0 {
			out = append(out, registration.ExpressionWarning{FieldRef: at.String(), Warning: strings.Join(problems, "\n")})
		}
	}
	for i, v := range p.Spec.Validations {
		at := field.NewPath("spec", "validations").Index(i)
		warn(at.Child("expression"), v.Expression)
		warn(at.Child("messageExpression"), v.MessageExpression)
	}
	return out, nil
}

// scope compiles expressions about objects of one kind.
type scope struct {
	*expression.Scope
	kind     schema.GroupVersionKind
	declared expression.Declared
}

// scopesOf returns a scope for each kind that a policy names, with its variables.
func scopesOf(ctx context.Context, docs *documents, s *registration.ValidatingAdmissionPolicySpec) ([]scope, error) {
	params, err := paramsType(ctx, docs, s.ParamKind)
	if err != nil {
		return nil, err
	}
	declared := expression.Declared{Params: s.ParamKind != nil, Authorizer: true}
	var out []scope
	for _, r := range resources(s.MatchConstraints) {
		doc, err := docs.of(ctx, r.GroupVersion())
		if err != nil {
			return nil, err
		}
		kind := r.GroupVersion().WithKind(doc.kindOf(r.Resource))
		object := doc.typeOf(kind, "kubernetes.Object")
		if object == nil {
			continue
		}
		named := expression.NewTypedCompiler(expression.Types{Object: object, Params: params}).NewScope(len(s.Variables) > 0)
		for _, v := range s.Variables {
			named.Define(v.Name, v.Expression, declared, true)
		}
		out = append(out, scope{named, kind, declared})
	}
	return out, nil
}

// paramsType returns the type of the parameters, nil if it is not known.
func paramsType(ctx context.Context, docs *documents, k *registration.ParamKind) (*apicel.DeclType, error) {
	if k == nil {
		return nil, nil
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return nil, nil // the API server refuses such policies
	}
	doc, err := docs.of(ctx, gv)
	if err != nil {
		return nil, err
	}
	return doc.typeOf(gv.WithKind(k.Kind), "kubernetes.Params"), nil
}

// problem returns why an expression does not compile for the kind, "" if it does.
func (s scope) problem(text string) string {
	program := s.Compile(text, s.declared, true, cel.AnyType)
	if program.Error == nil {
		return ""
	}
	if failed := (*apicel.CompilationError)(nil); errors.As(program.Error, &failed) {
		return fmt.Sprintf("%v: %s", s.kind, failed.Issues)
	}
	return fmt.Sprintf("%v: type checking error: %v", s.kind, program.Error)
}

// resources returns the resources that the rules name without wildcards, at most
// maxKinds, in the order of group, version and resource. Subresources are left out.
func resources(m *registration.MatchResources) []schema.GroupVersionResource {
	if m == nil {
		return nil
	}
	var out []schema.GroupVersionResource
	for _, rule := range m.ResourceRules {
		for _, group := range first(rule.APIGroups) {
			for _, version := range first(rule.APIVersions) {
				for _, resource := range first(rule.Resources) {
					out = append(out, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Resource, b.Resource))
	})
	out = slices.Compact(out)
	return out[:min(len(out), maxKinds)]
}

// first returns the names without wildcards and subresources: as many, in order, as the first
// maxKinds combinations may need.
func first(names []string) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.ContainsAny(n, "*/") })
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxKinds)]
}
