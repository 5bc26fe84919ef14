package clusterroleaggregation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCollect(t *testing.T) {
	rule := func(resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}}
	}
	role := func(name, label string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"to": label}}, Rules: rules}
	}
	all := []*rbacv1.ClusterRole{
		role("c", "edit", rule("pods")), role("b", "view", rule("nodes"), rule("pods")), role("a", "edit", rule("pods"), rule("secrets")), role("sum", "edit", rule("own")),
	}
	selecting := func(labels ...string) *rbacv1.ClusterRole {
		r := role("sum", "edit")
		r.AggregationRule = &rbacv1.AggregationRule{}
		for _, l := range labels {
			r.AggregationRule.ClusterRoleSelectors = append(r.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{"to": l}})
		}
		return r
	}
	for name, row := range map[string]struct {
		reason string
		role   *rbacv1.ClusterRole
		want   []rbacv1.PolicyRule
	}{
		"Nobody": {"", selecting("none"), []rbacv1.PolicyRule{}},
		"ByName": {"sorted, each rule once, and never the role's own", selecting("edit"), []rbacv1.PolicyRule{rule("pods"), rule("secrets")}},
		"Both":   {"selector after selector", selecting("view", "edit"), []rbacv1.PolicyRule{rule("nodes"), rule("pods"), rule("secrets")}},
	} {
		got, err := collect(row.role, all)
		if diff := cmp.Diff(row.want, got); diff != "" || err != nil {
			t.Errorf("%s: %s: %v\n%s", name, row.reason, err, diff)
		}
	}
	bad := selecting()
	bad.AggregationRule.ClusterRoleSelectors = []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}
	if _, err := collect(bad, all); err == nil {
		t.Error("a selector that is none")
	}
}
