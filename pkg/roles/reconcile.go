package roles

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AutoUpdate is the annotation that keeps a role or a binding from being
// reconciled, when its value is "false".
const AutoUpdate = "rbac.authorization.kubernetes.io/autoupdate"

// Options say what a reconciliation may take away.
type Options struct {
	RemoveExtraRules    bool
	RemoveExtraSubjects bool
}

// Protected says whether an object is not to be reconciled.
func Protected(m metav1.Object) bool { return m.GetAnnotations()[AutoUpdate] == "false" }

// ClusterRole makes have what want says and tells whether it had to. What is
// aggregated has rules of its own, which stay.
func ClusterRole(have, want *rbacv1.ClusterRole, o Options) (changed bool) {
	changed = Metadata(&have.ObjectMeta, &want.ObjectMeta)
	if want.AggregationRule == nil {
		return rules(&have.Rules, want.Rules, o) || changed
	}
	if have.AggregationRule == nil {
		have.AggregationRule = &rbacv1.AggregationRule{}
	}
	for _, s := range want.AggregationRule.ClusterRoleSelectors {
		same := func(other metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(s, other) }
		if !slices.ContainsFunc(have.AggregationRule.ClusterRoleSelectors, same) {
			have.AggregationRule.ClusterRoleSelectors = append(have.AggregationRule.ClusterRoleSelectors, s)
			changed = true
		}
	}
	return changed
}

// Role is the same for a role.
func Role(have, want *rbacv1.Role, o Options) (changed bool) {
	changed = Metadata(&have.ObjectMeta, &want.ObjectMeta)
	return rules(&have.Rules, want.Rules, o) || changed
}

func rules(have *[]rbacv1.PolicyRule, want []rbacv1.PolicyRule, o Options) (changed bool) {
	if o.RemoveExtraRules && len(Missing(want, *have)) > 0 {
		*have = slices.Clone(want)
		return true
	}
	missing := Missing(*have, want)
	*have = append(*have, Compact(missing)...)
	return len(missing) > 0
}

// Subjects makes a binding's subjects what is wanted and tells whether it had to.
func Subjects(have *[]rbacv1.Subject, want []rbacv1.Subject, o Options) (changed bool) {
	for _, s := range want {
		if !slices.Contains(*have, s) {
			*have, changed = append(*have, s), true
		}
	}
	if o.RemoveExtraSubjects {
		n := len(*have)
		*have = slices.DeleteFunc(*have, func(s rbacv1.Subject) bool { return !slices.Contains(want, s) })
		changed = changed || len(*have) < n
	}
	return changed
}

// Metadata adds the labels and annotations that have lacks; what it has it
// keeps.
func Metadata(have, want *metav1.ObjectMeta) (changed bool) {
	fill := func(have *map[string]string, want map[string]string) {
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if _, ok := (*have)[k]; ok {
				continue
			}
			if *have == nil {
				*have = map[string]string{}
			}
			(*have)[k], changed = want[k], true
		}
	}
	fill(&have.Labels, want.Labels)
	fill(&have.Annotations, want.Annotations)
	return changed
}
