package roles

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","), ResourceNames: names}
}

func urls(verbs string, paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), NonResourceURLs: paths}
}

func TestMissing(t *testing.T) {
	for name, row := range map[string]struct {
		reason       string
		have, wanted []rbacv1.PolicyRule
		want         []rbacv1.PolicyRule
	}{
		"Same":       {"", []rbacv1.PolicyRule{rule("get,list", "", "pods")}, []rbacv1.PolicyRule{rule("list,get", "", "pods")}, nil},
		"Verb":       {"", []rbacv1.PolicyRule{rule("get", "", "pods")}, []rbacv1.PolicyRule{rule("get,list", "", "pods")}, []rbacv1.PolicyRule{rule("list", "", "pods")}},
		"InPieces":   {"each part by another rule", []rbacv1.PolicyRule{rule("get", "", "pods"), rule("get", "", "nodes")}, []rbacv1.PolicyRule{rule("get", "", "pods,nodes")}, nil},
		"Everything": {"", []rbacv1.PolicyRule{rule("*", "*", "*")}, []rbacv1.PolicyRule{rule("get", "x", "y/z", "n")}, nil},
		"NotStar":    {"all verbs that exist today are not all verbs", []rbacv1.PolicyRule{rule("get,list,watch,create,update,patch,delete", "", "pods")}, []rbacv1.PolicyRule{rule("*", "", "pods")}, []rbacv1.PolicyRule{rule("*", "", "pods")}},
		"AnySub":     {"", []rbacv1.PolicyRule{rule("get", "*", "*/scale")}, []rbacv1.PolicyRule{rule("get", "apps", "deployments/scale")}, nil},
		"OtherSub":   {"", []rbacv1.PolicyRule{rule("get", "*", "*/scale")}, []rbacv1.PolicyRule{rule("get", "apps", "deployments")}, []rbacv1.PolicyRule{rule("get", "apps", "deployments")}},
		"Names":      {"", []rbacv1.PolicyRule{rule("get", "", "pods", "a")}, []rbacv1.PolicyRule{rule("get", "", "pods", "a", "b")}, []rbacv1.PolicyRule{rule("get", "", "pods", "b")}},
		"AllNames":   {"one is not all", []rbacv1.PolicyRule{rule("get", "", "pods", "a")}, []rbacv1.PolicyRule{rule("get", "", "pods")}, []rbacv1.PolicyRule{rule("get", "", "pods")}},
		"URLs":       {"", []rbacv1.PolicyRule{urls("get", "/a/*")}, []rbacv1.PolicyRule{urls("get", "/a/b", "/a/*", "/c")}, []rbacv1.PolicyRule{urls("get", "/c")}},
		"URLsOfAll":  {"", []rbacv1.PolicyRule{rule("*", "*", "*")}, []rbacv1.PolicyRule{urls("get", "/c")}, []rbacv1.PolicyRule{urls("get", "/c")}},
	} {
		if diff := cmp.Diff(row.want, Missing(row.have, row.wanted)); diff != "" {
			t.Errorf("%s: %s\n%s", name, row.reason, diff)
		}
	}
}

func TestTextOfCompactRules(t *testing.T) {
	got := Compact([]rbacv1.PolicyRule{rule("get", "", "pods"), urls("get", "/a"), rule("list", "", "pods"), rule("get", "", "pods", "x"), rule("get", "", "pods")})
	var texts []string
	for i := range got {
		texts = append(texts, Text(&got[i]))
	}
	want := []string{`{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`, `{NonResourceURLs:["/a"], Verbs:["get"]}`, `{APIGroups:[""], Resources:["pods"], ResourceNames:["x"], Verbs:["get"]}`}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
}

func TestReconcile(t *testing.T) {
	meta := func(labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "r", Labels: labels}
	}
	have := &rbacv1.ClusterRole{ObjectMeta: meta(map[string]string{"a": "mine"}), Rules: []rbacv1.PolicyRule{rule("get", "", "extra")}}
	want := &rbacv1.ClusterRole{ObjectMeta: meta(map[string]string{"a": "theirs", "b": "c"}), Rules: []rbacv1.PolicyRule{rule("get,list", "", "pods")}}
	if !ClusterRole(have, want, Options{}) || ClusterRole(have, want, Options{}) {
		t.Error("the first time there is something to do, the second time nothing")
	}
	if diff := cmp.Diff(&rbacv1.ClusterRole{ObjectMeta: meta(map[string]string{"a": "mine", "b": "c"}), Rules: []rbacv1.PolicyRule{rule("get", "", "extra"), rule("get,list", "", "pods")}}, have); diff != "" {
		t.Error(diff)
	}
	if !ClusterRole(have, want, Options{RemoveExtraRules: true}) || !cmp.Equal(have.Rules, want.Rules) {
		t.Errorf("what is too much: %+v", have.Rules)
	}
	user := func(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "User", Name: name} }
	subjects := []rbacv1.Subject{user("a"), user("b")}
	if !Subjects(&subjects, []rbacv1.Subject{user("b"), user("c")}, Options{RemoveExtraSubjects: true}) || !cmp.Equal(subjects, []rbacv1.Subject{user("b"), user("c")}) {
		t.Errorf("subjects: %+v", subjects)
	}
	sum := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{rule("get", "", "pods")}}
	aggregating := &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}}}}
	if !ClusterRole(sum, aggregating, Options{}) || ClusterRole(sum, aggregating, Options{}) || len(sum.Rules) != 1 || len(sum.AggregationRule.ClusterRoleSelectors) != 1 {
		t.Errorf("aggregation: %+v", sum)
	}
}
