package match_test

import (
	"testing"

	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/match"
	"podium/pkg/scheme"
)

func TestMatch(t *testing.T) {
	objects := admissiontest.Objects{"namespaces/ns": &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"env": "prod"}}}}
	pods, nodes := corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithResource("nodes")
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	old, newer := schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "things"}, schema.GroupVersionResource{Group: "g", Version: "v2", Resource: "things"}
	labelled := func(value string) scheme.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: map[string]string{"app": value}}}
	}
	pod := admission.Attributes{Operation: admission.Create, Resource: pods, Namespace: "ns", Name: "p", Object: labelled("a")}
	node := admission.Attributes{Operation: admission.Delete, Resource: nodes, Name: "n"}
	itself := admission.Attributes{Operation: admission.Update, Resource: namespaces, Name: "ns", Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"env": "test"}}}}
	gone := admission.Attributes{Operation: admission.Delete, Resource: namespaces, Name: "ns"}
	attach := admission.Attributes{Operation: admission.Connect, Resource: pods, Subresource: "attach", Namespace: "ns", Name: "p", Body: &corev1.PodAttachOptions{}}
	thing := admission.Attributes{Operation: admission.Create, Resource: newer, Namespace: "ns", Forms: []admission.Form{{Resource: old}, {Resource: newer}}}
	rule := func(op registration.OperationType, group, version, resource string, scope registration.ScopeType) registration.RuleWithOperations {
		return registration.RuleWithOperations{Operations: []registration.OperationType{op}, Rule: registration.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}, Scope: &scope,
		}}
	}
	selects := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	const all = registration.AllScopes
	exact := registration.Exact
	for name, row := range map[string]struct {
		rule              registration.RuleWithOperations
		policy            *registration.MatchPolicyType
		namespace, object *metav1.LabelSelector
		a                 admission.Attributes
		want              string // the version that matches; empty: none does
	}{
		"exactly":                       {rule: rule("CREATE", "", "v1", "pods", all), a: pod, want: "v1"},
		"all":                           {rule: rule("*", "*", "*", "*/*", all), a: pod, want: "v1"},
		"all and subresources":          {rule: rule("*", "*", "*", "*/*", all), a: attach, want: "v1"},
		"all but subresources":          {rule: rule("*", "*", "*", "*", all), a: attach},
		"a subresource":                 {rule: rule("CONNECT", "", "v1", "pods/attach", all), a: attach, want: "v1"},
		"a subresource of all":          {rule: rule("CONNECT", "", "v1", "*/attach", all), a: attach, want: "v1"},
		"all subresources":              {rule: rule("CONNECT", "", "v1", "pods/*", all), a: attach, want: "v1"},
		"all subresources and itself":   {rule: rule("CREATE", "", "v1", "pods/*", all), a: pod, want: "v1"},
		"another operation":             {rule: rule("UPDATE", "", "v1", "pods", all), a: pod},
		"another group":                 {rule: rule("*", "apps", "v1", "pods", all), a: pod},
		"another version":               {rule: rule("*", "", "v2", "pods", all), a: pod},
		"namespaced":                    {rule: rule("*", "*", "*", "*", registration.NamespacedScope), a: pod, want: "v1"},
		"cluster":                       {rule: rule("*", "*", "*", "*", registration.ClusterScope), a: pod},
		"a node is in the cluster":      {rule: rule("*", "*", "*", "*", registration.ClusterScope), a: node, want: "v1"},
		"a namespace is in the cluster": {rule: rule("*", "*", "*", "*", registration.ClusterScope), a: itself, want: "v1"},
		"a namespace is in none":        {rule: rule("*", "*", "*", "*", registration.NamespacedScope), a: itself},
		"namespace's labels":            {rule: rule("*", "*", "*", "*", all), namespace: selects("env", "prod"), a: pod, want: "v1"},
		"other labels":                  {rule: rule("*", "*", "*", "*", all), namespace: selects("env", "test"), a: pod},
		"new labels of a namespace":     {rule: rule("*", "*", "*", "*", all), namespace: selects("env", "test"), a: itself, want: "v1"},
		"labels of a deleted namespace": {rule: rule("*", "*", "*", "*", all), namespace: selects("env", "prod"), a: gone, want: "v1"},
		"a node has no namespace":       {rule: rule("*", "*", "*", "*", all), namespace: selects("env", "test"), a: node, want: "v1"},
		"object's labels":               {rule: rule("*", "*", "*", "*", all), object: selects("app", "a"), a: pod, want: "v1"},
		"other labels of the object":    {rule: rule("*", "*", "*", "*", all), object: selects("app", "b"), a: pod},
		"options have no labels":        {rule: rule("*", "*", "*", "*/*", all), object: selects("app", "a"), a: attach},
		"equivalent":                    {rule: rule("*", "g", "v2", "things", all), a: thing, want: "v2"},
		"equivalent, exactly":           {rule: rule("*", "g", "v2", "things", all), policy: &exact, a: thing},
		"the request's version first":   {rule: rule("*", "g", "*", "things", all), a: thing, want: "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := match.ForWebhook([]registration.RuleWithOperations{row.rule}, row.policy, row.namespace, row.object)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			form, err := c.Match(t.Context(), objects, &row.a)
			if form != nil {
				got = form.Resource.Version
			}
			if err != nil || got != row.want {
				t.Errorf("matches %q, want %q: %v", got, row.want, err)
			}
		})
	}
}

// The old object's labels count as well, so that a label cannot be removed to
// escape a webhook.
func TestOldLabelsMatch(t *testing.T) {
	rules := []registration.RuleWithOperations{{Operations: []registration.OperationType{"*"}, Rule: registration.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}}}}
	c, err := match.ForWebhook(rules, nil, nil, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	a := &admission.Attributes{Operation: admission.Update, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns",
		Object: &corev1.Pod{}, Old: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}}}
	if form, err := c.Match(t.Context(), admissiontest.Objects{}, a); form == nil || err != nil {
		t.Errorf("%v, %v", form, err)
	}
}

func TestPolicyRules(t *testing.T) {
	on := func(resource string, names ...string) registration.NamedRuleWithOperations {
		return registration.NamedRuleWithOperations{ResourceNames: names, RuleWithOperations: registration.RuleWithOperations{
			Operations: []registration.OperationType{"*"}, Rule: registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}
	a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Name: "p"}
	type rules = []registration.NamedRuleWithOperations
	for name, row := range map[string]struct {
		resources *registration.MatchResources
		anything  bool
		want      bool
	}{
		"nothing":             {resources: nil, want: true},
		"no rules":            {resources: &registration.MatchResources{}},
		"a binding's":         {resources: &registration.MatchResources{}, anything: true, want: true},
		"excluded":            {resources: &registration.MatchResources{ResourceRules: rules{on("*")}, ExcludeResourceRules: rules{on("pods")}}},
		"another is excluded": {resources: &registration.MatchResources{ResourceRules: rules{on("*")}, ExcludeResourceRules: rules{on("nodes")}}, want: true},
		"named":               {resources: &registration.MatchResources{ResourceRules: rules{on("pods", "p", "q")}}, want: true},
		"another name":        {resources: &registration.MatchResources{ResourceRules: rules{on("pods", "q")}}},
	} {
		c, err := match.ForPolicy(row.resources, row.anything)
		if err != nil {
			t.Fatal(err)
		}
		if form, err := c.Match(t.Context(), admissiontest.Objects{}, a); (form != nil) != row.want || err != nil {
			t.Errorf("%s: %v, %v", name, form, err)
		}
	}
}
