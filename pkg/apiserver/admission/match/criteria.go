package match

import (
	"context"
	"slices"
	"strings"

	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
)

// Criteria select requests. They are immutable and safe for concurrent use.
type Criteria struct {
	rules, exclude    []registration.NamedRuleWithOperations
	anything          bool // without rules, all requests match
	exact             bool // other versions of the resource do not match
	namespace, object labels.Selector
}

// ForWebhook returns the criteria of a webhook.
func ForWebhook(rules []registration.RuleWithOperations, policy *registration.MatchPolicyType, namespace, object *metav1.LabelSelector) (*Criteria, error) {
	named := make([]registration.NamedRuleWithOperations, len(rules))
	for i := range rules {
		named[i].RuleWithOperations = rules[i]
	}
	return ForPolicy(&registration.MatchResources{ResourceRules: named, MatchPolicy: policy, NamespaceSelector: namespace, ObjectSelector: object}, false)
}

// ForPolicy returns the criteria of a policy or a binding. nil match all
// requests. anything is set if a lack of rules matches all requests, as in a
// binding.
func ForPolicy(r *registration.MatchResources, anything bool) (*Criteria, error) {
	if r == nil {
		return &Criteria{anything: true, namespace: labels.Everything(), object: labels.Everything()}, nil
	}
	c := &Criteria{rules: r.ResourceRules, exclude: r.ExcludeResourceRules, anything: anything}
	c.exact = r.MatchPolicy != nil && *r.MatchPolicy == registration.Exact
	var err error
	if c.namespace, err = selector(r.NamespaceSelector); err != nil {
		return nil, err
	}
	c.object, err = selector(r.ObjectSelector)
	return c, err
}

// selector parses a selector; nil selects everything.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// Match returns the form in which a request matches, nil if it does not.
func (c *Criteria) Match(ctx context.Context, o admission.Objects, a *admission.Attributes) (*admission.Form, error) {
	form := c.ruled(a)
	if form == nil || c.find(c.exclude, a) != nil || !c.matchesObject(a) {
		return nil, nil
	}
	if in, err := c.matchesNamespace(ctx, o, a); !in || err != nil {
		return nil, err
	}
	return form, nil
}

func (c *Criteria) ruled(a *admission.Attributes) *admission.Form {
	if len(c.rules) == 0 && c.anything {
		return &a.InForms()[0]
	}
	return c.find(c.rules, a)
}

// find returns the form in which a rule matches: that of the request, else the
// first equivalent one by the order of the rules.
func (c *Criteria) find(rules []registration.NamedRuleWithOperations, a *admission.Attributes) *admission.Form {
	forms := a.InForms()
	for i := range rules {
		if matches(&rules[i], a, forms[0].Resource) {
			return &forms[0]
		}
	}
	if c.exact {
		return nil
	}
	for i := range rules {
		for f := 1; f < len(forms); f++ {
			if matches(&rules[i], a, forms[f].Resource) {
				return &forms[f]
			}
		}
	}
	return nil
}

// matches reports whether a rule matches a request for a resource.
func matches(r *registration.NamedRuleWithOperations, a *admission.Attributes, in schema.GroupVersionResource) bool {
	return scoped(r.Scope, a) &&
		anyOf(r.Operations, registration.OperationType(a.Operation)) &&
		anyOf(r.APIGroups, in.Group) && anyOf(r.APIVersions, in.Version) &&
		slices.ContainsFunc(r.Resources, func(pattern string) bool {
			resource, sub, _ := strings.Cut(pattern, "/")
			return (resource == "*" || resource == in.Resource) && (sub == "*" || sub == a.Subresource)
		}) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

// anyOf reports whether a list has a value or the wildcard.
func anyOf[T ~string](list []T, value T) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

// scoped reports whether a rule's scope includes the request.
func scoped(scope *registration.ScopeType, a *admission.Attributes) bool {
	if scope == nil || *scope == registration.AllScopes {
		return true
	}
	namespaced := a.Namespace != "" && !ofNamespaces(a)
	return namespaced == (*scope == registration.NamespacedScope)
}

// ofNamespaces reports whether the request is for a Namespace itself.
func ofNamespaces(a *admission.Attributes) bool {
	return a.Resource.Group == "" && a.Resource.Resource == "namespaces"
}

// Namespace returns the namespace of a request; for a Namespace, its own name.
func Namespace(a *admission.Attributes) string {
	if ofNamespaces(a) {
		return a.Name
	}
	return a.Namespace
}

func (c *Criteria) matchesObject(a *admission.Attributes) bool {
	if c.object.Empty() {
		return true
	}
	old := runtime.Object(nil)
	if a.Old != nil {
		old = a.Old
	}
	for _, obj := range []runtime.Object{a.Subject(), old} {
		if obj == nil {
			continue
		}
		if m, err := meta.Accessor(obj); err == nil && c.object.Matches(labels.Set(m.GetLabels())) {
			return true
		}
	}
	return false
}

// matchesNamespace reports whether the namespace selector includes the request.
// It never excludes cluster-scoped objects other than namespaces. It returns a
// 404 if the namespace does not exist.
func (c *Criteria) matchesNamespace(ctx context.Context, o admission.Objects, a *admission.Attributes) (bool, error) {
	name := Namespace(a)
	if c.namespace.Empty() || name == "" && !ofNamespaces(a) {
		return true, nil
	}
	if ofNamespaces(a) && a.Subresource == "" && a.Object != nil {
		return c.namespace.Matches(labels.Set(a.Object.GetLabels())), nil
	}
	ns, err := admission.Namespace(ctx, o, name)
	if err != nil {
		return false, err
	}
	if ns == nil {
		return false, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return c.namespace.Matches(labels.Set(ns.Labels)), nil
}

// Exempt reports whether the request is for an object that configures webhooks
// or policies. These apply to none of them: otherwise one could not be removed.
func Exempt(a *admission.Attributes) bool { return a.Resource.Group == registration.GroupName }
