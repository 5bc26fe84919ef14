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

// Access answers the authorization queries of the kinds. It must be safe for
// concurrent use.
type Access interface {
	authz.Authorizer
	// RulesFor returns the rules of a user in a namespace, or cluster-wide if
	// namespace is "".
	RulesFor(user *request.User, namespace string) []rbacv1.PolicyRule
	// RoleRules returns the rules of a Role, or of a ClusterRole if namespace is
	// "".
	RoleRules(namespace, name string) (all []rbacv1.PolicyRule, found bool)
	// Review returns the rules of a user in a namespace for a
	// SelfSubjectRulesReview.
	Review(user *request.User, namespace string) authorizationv1.SubjectRulesReviewStatus
}

// Privilege escalation prevention: a user who writes a role must hold all its
// permissions, or the verb escalate; a user who binds a role must hold all its
// permissions, or the verb bind.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping

// unlimited reports whether the request is exempt: it is made by the server itself
// or by a member of system:masters.
func unlimited(ctx context.Context) bool {
	user := request.UserFrom(ctx)
	return user == nil || user.In(request.Masters)
}

func rbacGroup(resource string) schema.GroupResource {
	return schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}
}

// mayEscalate reports whether the user of ctx has the verb that lifts the
// restriction.
func (cfg *Config) mayEscalate(ctx context.Context, verb, resource, namespace, name string) bool {
	if cfg.Access == nil {
		return false
	}
	d, _ := cfg.Access.Authorize(ctx, request.UserFrom(ctx), &request.Info{
		IsResource: true, Verb: verb, Group: rbacv1.GroupName, Version: "*", Resource: resource, Namespace: namespace, Name: name,
	})
	return d == authz.Allow
}

// confirm returns an error unless the user of ctx has all wanted rules in the
// namespace.
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

// prepareRole returns a Forbidden error if writing the role would escalate the
// user's permissions.
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

// prepareClusterRole is prepareRole for cluster roles. Aggregation requires all
// permissions, because the aggregated rules may be any.
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

// prepareBinding returns an error unless the user may grant the role. namespace is
// "" for a ClusterRoleBinding.
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

// requestedName returns the name in the path of the request, which is "" for a
// create.
func requestedName(ctx context.Context) string {
	if r := request.From(ctx); r != nil {
		return r.Name
	}
	return ""
}
