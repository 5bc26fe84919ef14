package clusterroleaggregation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// Controller is the cluster role aggregation controller. Its keys are cluster
// roles with an aggregation rule.
type Controller struct {
	cfg   kit.Kit
	loop  *loop.Loop
	roles client.Resource[*rbacv1.ClusterRole]
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{cfg: cfg, roles: client.For[*rbacv1.ClusterRole](cfg.Client)}
	c.loop = cfg.Loop("clusterrole_aggregation", 0, c.reconcile, cfg.Views.ClusterRoles)
	loop.WakeOn(c.loop, cfg.Views.ClusterRoles, c.aggregating)
	return c
}

// Run keeps the roles until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// aggregating are all roles with an aggregation rule: there are few, and a
// change of any role's labels may concern each.
func (c *Controller) aggregating(changed *rbacv1.ClusterRole) []loop.Key {
	var keys []loop.Key
	if changed.AggregationRule != nil {
		keys = append(keys, loop.Key{Name: changed.Name})
	}
	for _, r := range c.cfg.Views.ClusterRoles.List() {
		if r.AggregationRule != nil && r.Name != changed.Name {
			keys = append(keys, loop.Key{Name: r.Name})
		}
	}
	return keys
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	role, ok := c.cfg.Views.ClusterRoles.Get("", key.Name)
	if !ok || role.AggregationRule == nil || role.DeletionTimestamp != nil {
		return loop.Done, nil
	}
	rules, err := collect(role, c.cfg.Views.ClusterRoles.List())
	if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
		return loop.Done, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": role.ResourceVersion}, "rules": rules,
	})
	if err != nil {
		return loop.Done, err
	}
	got, err := c.roles.Patch(ctx, role.Name, types.MergePatchType, patch)
	if apierrors.IsNotFound(err) {
		return loop.Done, nil
	}
	if err != nil {
		return loop.Done, fmt.Errorf("write the rules of cluster role %s: %w", role.Name, err)
	}
	c.loop.Wrote(key, c.cfg.Views.ClusterRoles, got.ResourceVersion)
	return loop.Done, nil
}

// collect is the sum of the rules of the roles that the aggregation rule
// selects, by the roles' names, each rule once.
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
