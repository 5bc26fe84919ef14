package roles

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AutoUpdate is an annotation of a role or a binding. The value "false" excludes the object
// from reconciliation.
const AutoUpdate = "rbac.authorization.kubernetes.io/autoupdate"

// Options set what a reconciliation may remove.
type Options struct {
	RemoveExtraRules    bool
	RemoveExtraSubjects bool
}

// Protected reports whether an object is excluded from reconciliation.
func Protected(m metav1.Object) bool { return m.GetAnnotations()[AutoUpdate] == "false" }

// ClusterRole adds to have what it lacks of want, and removes extra rules if o allows it.
// It reports whether it changed have. It does not change the rules of an aggregated role.
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

// Role is ClusterRole for a Role.
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

// Subjects adds the missing subjects of want to have, and removes extra ones if o allows
// it. It reports whether it changed have.
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

// Metadata adds the labels and annotations that have lacks; existing ones are kept. It
// reports whether it changed have.
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
