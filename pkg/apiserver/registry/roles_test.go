package registry_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

func TestRolesAreValidated(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	ref := func(kind string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: kind, Name: "r"} }
	read := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	for name, row := range map[string]struct {
		reason string
		new    scheme.Object
		old    scheme.Object
		want   []string
	}{
		"Good":        {reason: "", new: &rbacv1.Role{Rules: []rbacv1.PolicyRule{read}}},
		"EmptyRule":   {"it would allow nothing", &rbacv1.Role{Rules: []rbacv1.PolicyRule{{}}}, nil, []string{"rules[0].verbs: Required value: verbs must contain at least one value", "rules[0].apiGroups: Required value: resource rules must supply at least one api group", "rules[0].resources: Required value: resource rules must supply at least one resource"}},
		"URLInRole":   {"URLs are in no namespace", &rbacv1.Role{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}}, nil, []string{`rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs`}},
		"Mixed":       {"a rule is about one or the other", &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}, Resources: []string{"pods"}}}}, nil, []string{`rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs`}},
		"NoSelector":  {"nothing to aggregate", &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{}}, nil, []string{"aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"}},
		"Binding":     {reason: "", new: &rbacv1.RoleBinding{RoleRef: ref("ClusterRole"), Subjects: []rbacv1.Subject{{Kind: "User", Name: "u"}, {Kind: "ServiceAccount", Name: "a"}}}},
		"NamespaceOf": {"a cluster role binding has none of its own", &rbacv1.ClusterRoleBinding{RoleRef: ref("ClusterRole"), Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a"}}}, nil, []string{"subjects[0].namespace: Required value"}},
		"Subject":     {"there are three kinds", &rbacv1.RoleBinding{RoleRef: ref("Role"), Subjects: []rbacv1.Subject{{Kind: "Robot"}}}, nil, []string{"subjects[0].name: Required value", `subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`}},
		"NoRole":      {"everywhere means a cluster role", &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role"}}, nil, []string{`roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`, "roleRef.name: Required value"}},
		"Rebound": {"what a binding gives never changes", &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "s"}}, &rbacv1.RoleBinding{RoleRef: ref("Role")},
			[]string{`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"s"}: cannot change roleRef`}},
	} {
		gvk, err := r.scheme.GVKOf(row.new)
		if err != nil {
			t.Fatal(err)
		}
		k := r.kinds[r.scheme.ByKind(gvk).Resource]
		for _, obj := range []scheme.Object{row.new, row.old} {
			if obj != nil && k.Default != nil {
				k.Default(obj)
			}
		}
		if diff := cmp.Diff(row.want, texts(k.Validate(row.new, row.old))); diff != "" {
			t.Errorf("%s: %s\n%s", name, row.reason, diff)
		}
	}
	if errs := r.kinds["roles"].ValidateName("system:a b", false); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := r.kinds["roles"].ValidateName("a/b", false); len(errs) == 0 {
		t.Error("a slash in a name")
	}
}

func TestRoleRows(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	subjects := []rbacv1.Subject{{Kind: "User", Name: "u"}, {Kind: "Group", Name: "g"}, {Kind: "Group", Name: "h"}, {Kind: "ServiceAccount", Namespace: "n", Name: "a"}}
	for resource, row := range map[string]struct {
		obj  scheme.Object
		want []any
	}{
		"roles":               {&rbacv1.Role{ObjectMeta: born(time.Hour)}, []any{"x", "2026-01-02T02:04:05Z"}},
		"clusterroles":        {&rbacv1.ClusterRole{ObjectMeta: born(time.Hour)}, []any{"x", "2026-01-02T02:04:05Z"}},
		"rolebindings":        {&rbacv1.RoleBinding{ObjectMeta: born(time.Hour), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "r"}, Subjects: subjects}, []any{"x", "Role/r", "60m", "u", "g, h", "n/a"}},
		"clusterrolebindings": {&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}}, []any{"x", "ClusterRole/r", "<unknown>", "", "", ""}},
	} {
		if diff := cmp.Diff(row.want, r.kinds[resource].Row(row.obj, today)); diff != "" {
			t.Errorf("%s\n%s", resource, diff)
		}
	}
}
