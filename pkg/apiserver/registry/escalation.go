package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/roles"
)

// Access is who may do what, for the kinds that ask.
type Access interface {
	authz.Authorizer
	// RulesFor are the rules that hold for a user in a namespace, or everywhere.
	RulesFor(user *request.User, namespace string) []rbacv1.PolicyRule
	// RoleRules are the rules of a role, of a cluster role without a namespace.
	RoleRules(namespace, name string) (all []rbacv1.PolicyRule, found bool)
	// Review is the answer to the question what a user may do in a namespace.
	Review(user *request.User, namespace string) authorizationv1.SubjectRulesReviewStatus
}

// Nobody gives what he does not have: who writes a role must be allowed all
// that it allows, or to escalate; who binds one, the same, or to bind it.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping

// unlimited says that the request is the server's own or an administrator's.
func unlimited(ctx context.Context) bool {
	user := request.UserFrom(ctx)
	return user == nil || user.In(request.Masters)
}

func rbacGroup(resource string) schema.GroupResource {
	return schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}
}

// mayEscalate asks for the verb that lifts the limit.
func (cfg *Config) mayEscalate(ctx context.Context, verb, resource, namespace, name string) bool {
	if cfg.Access == nil {
		return false
	}
	d, _ := cfg.Access.Authorize(ctx, request.UserFrom(ctx), &request.Info{
		IsResource: true, Verb: verb, Group: rbacv1.GroupName, Version: "*", Resource: resource, Namespace: namespace, Name: name,
	})
	return d == authz.Allow
}

// confirm is an error unless the user has all the rules in the namespace.
func (cfg *Config) confirm(ctx context.Context, namespace string, wanted []rbacv1.PolicyRule) error {
	user := request.UserFrom(ctx)
	var have []rbacv1.PolicyRule
	if cfg.Access != nil {
		have = cfg.Access.RulesFor(user, namespace)
	}
	missing := roles.Compact(roles.Missing(have, wanted))
	if len(missing) == 0 {
		return nil
	}
	var lines []string
	for i := range missing {
		lines = append(lines, roles.Text(&missing[i]))
	}
	slices.Sort(lines)
	return fmt.Errorf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		user.Name, user.Groups, strings.Join(slices.Compact(lines), "\n"))
}

// prepareRole checks who writes a role.
func (cfg *Config) prepareRole(ctx context.Context, _ Backend, new, old *rbacv1.Role) error {
	if old != nil && equality.Semantic.DeepEqual(new.Rules, old.Rules) || unlimited(ctx) ||
		cfg.mayEscalate(ctx, "escalate", "roles", new.Namespace, requestedName(ctx)) {
		return nil
	}
	if err := cfg.confirm(ctx, new.Namespace, new.Rules); err != nil {
		return apierrors.NewForbidden(rbacGroup("roles"), new.Name, err)
	}
	return nil
}

// prepareClusterRole does the same. What a role aggregates may be anything.
func (cfg *Config) prepareClusterRole(ctx context.Context, _ Backend, new, old *rbacv1.ClusterRole) error {
	if old != nil && equality.Semantic.DeepEqual(new.Rules, old.Rules) && equality.Semantic.DeepEqual(new.AggregationRule, old.AggregationRule) ||
		unlimited(ctx) || cfg.mayEscalate(ctx, "escalate", "clusterroles", "", requestedName(ctx)) {
		return nil
	}
	if err := cfg.confirm(ctx, "", new.Rules); err != nil {
		return apierrors.NewForbidden(rbacGroup("clusterroles"), new.Name, err)
	}
	if new.AggregationRule == nil && (old == nil || old.AggregationRule == nil) {
		return nil
	}
	everything := []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}
	if cfg.confirm(ctx, "", everything) != nil {
		return apierrors.NewForbidden(rbacGroup("clusterroles"), new.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

// prepareBinding checks who gives a role to somebody. namespace is empty for a
// cluster role binding.
func (cfg *Config) prepareBinding(ctx context.Context, resource, namespace, name string, ref rbacv1.RoleRef) error {
	if unlimited(ctx) {
		return nil
	}
	of, where := "roles", namespace
	if ref.Kind == "ClusterRole" {
		of, where = "clusterroles", ""
	}
	if cfg.mayEscalate(ctx, "bind", of, namespace, ref.Name) {
		return nil
	}
	var rules []rbacv1.PolicyRule
	found := false
	if cfg.Access != nil {
		rules, found = cfg.Access.RoleRules(where, ref.Name)
	}
	if !found {
		return apierrors.NewNotFound(rbacGroup(of), ref.Name)
	}
	if err := cfg.confirm(ctx, namespace, rules); err != nil {
		return apierrors.NewForbidden(rbacGroup(resource), name, err)
	}
	return nil
}

// requestedName is the name in the request's path: none where an object is
// created.
func requestedName(ctx context.Context) string {
	if r := request.From(ctx); r != nil {
		return r.Name
	}
	return ""
}
