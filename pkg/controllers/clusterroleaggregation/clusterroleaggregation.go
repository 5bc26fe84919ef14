package clusterroleaggregation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Spec describes the cluster role aggregation controller.
func Spec() controller.Spec {
	return controller.Spec{Name: "clusterrole-aggregation-controller", Workers: 5, New: build}
}

// reconciler's keys are cluster roles with an aggregation rule.
type reconciler struct {
	*loop.Loop
	roles  *informer.Informer[*rbacv1.ClusterRole]
	writer controller.Writer[*rbacv1.ClusterRole]
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{roles: informers.For[*rbacv1.ClusterRole](c.Informers)}
	r.Loop = c.NewLoop("clusterrole_aggregation", 0, r.reconcile, r.roles)
	r.writer = controller.NewWriter(c, r.Loop, r.roles)
	loop.WakeOn(r.Loop, r.roles, r.aggregating)
	return r, nil
}

// aggregating returns the keys of all roles with an aggregation rule: there are few, and a
// change of any role's labels may affect each of them.
func (r *reconciler) aggregating(changed *rbacv1.ClusterRole) []loop.Key {
	var keys []loop.Key
	if changed.AggregationRule != nil {
		keys = append(keys, loop.Key{Name: changed.Name})
	}
	for _, role := range r.roles.List() {
		if role.AggregationRule != nil && role.Name != changed.Name {
			keys = append(keys, loop.Key{Name: role.Name})
		}
	}
	return keys
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	role, ok := r.roles.Get("", key.Name)
	if !ok || role.AggregationRule == nil || role.DeletionTimestamp != nil {
		return loop.Done, nil
	}
	rules, err := collect(role, r.roles.List())
	if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
		return loop.Done, err
	}
	_, err = r.writer.Patch(ctx, key, role, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"resourceVersion": role.ResourceVersion}, "rules": rules,
	})
	return loop.Done, err
}

// collect returns the rules of the roles that the aggregation rule selects, sorted by role
// name and without duplicates.
func collect(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	rules := []rbacv1.PolicyRule{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		sel, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("selector %d of cluster role %s: %w", i, role.Name, err)
		}
		for _, other := range all {
			if other.Name == role.Name || !sel.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, r := range other.Rules {
				if !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, r) }) {
					rules = append(rules, r)
				}
			}
		}
	}
	return rules, nil
}
