package apiserver

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/authz/bootstrap"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/roles"
	"podium/pkg/scheme"
)

// reconcileAtOnce is how many default roles or bindings are reconciled
// concurrently. A new cluster is not ready before all exist.
const reconcileAtOnce = 16

// ensureRoles reconciles the default roles and bindings once in the server's
// life: it creates missing ones and adds missing rules and subjects to existing
// ones. Additions by administrators stay.
func (s *Server) ensureRoles(ctx context.Context) error {
	if s.rolesDone.Load() {
		return nil
	}
	// Roles first, since requests of a subject bound to a missing role would be
	// forbidden.
	p := bootstrap.Default()
	var all, bindings []func(context.Context) error
	for _, r := range p.ClusterRoles {
		all = append(all, reconciled(s, "clusterroles", r, func(have *rbacv1.ClusterRole) bool {
			return roles.ClusterRole(have, r, roles.Options{})
		}))
	}
	for _, r := range p.Roles {
		all = append(all, reconciled(s, "roles", r, func(have *rbacv1.Role) bool { return roles.Role(have, r, roles.Options{}) }))
	}
	for _, b := range p.ClusterRoleBindings {
		bindings = append(bindings, bound(s, "clusterrolebindings", b,
			func(b *rbacv1.ClusterRoleBinding) (*rbacv1.RoleRef, *[]rbacv1.Subject) {
				return &b.RoleRef, &b.Subjects
			}))
	}
	for _, b := range p.RoleBindings {
		bindings = append(bindings, bound(s, "rolebindings", b,
			func(b *rbacv1.RoleBinding) (*rbacv1.RoleRef, *[]rbacv1.Subject) { return &b.RoleRef, &b.Subjects }))
	}
	for _, step := range [][]func(context.Context) error{all, bindings} {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(reconcileAtOnce)
		for _, f := range step {
			g.Go(func() error { return f(ctx) })
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("make the default roles: %w", err)
		}
	}
	s.rolesDone.Store(true)
	return nil
}

// reconciled returns a function that creates want, or calls change on the
// existing object unless it is protected from reconciliation. change modifies
// its argument and reports whether it did.
func reconciled[T scheme.Object](s *Server, resource string, want T, change func(have T) bool) func(context.Context) error {
	gvr := rbacv1.SchemeGroupVersion.WithResource(resource)
	return func(ctx context.Context) error {
		return s.shape(ctx, gvr, want, func(obj scheme.Object) bool {
			return !roles.Protected(obj) && change(obj.(T))
		})
	}
}

// bound is reconciled for a binding. It deletes and recreates a binding that
// refers to another role, since roleRef is immutable.
func bound[T scheme.Object](s *Server, resource string, want T, parts func(T) (*rbacv1.RoleRef, *[]rbacv1.Subject)) func(context.Context) error {
	gvr := rbacv1.SchemeGroupVersion.WithResource(resource)
	ref, subjects := parts(want)
	shape := reconciled(s, resource, want, func(have T) bool {
		_, theirs := parts(have)
		return roles.Subjects(theirs, *subjects, roles.Options{})
	})
	return func(ctx context.Context) error {
		have, err := s.api.Get(ctx, gvr, want.GetNamespace(), want.GetName())
		if err == nil && !roles.Protected(have) {
			if theirs, _ := parts(have.(T)); *theirs != *ref {
				err = s.api.Delete(ctx, gvr, want.GetNamespace(), want.GetName(), nil)
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return shape(ctx)
	}
}

// rolesPath is the page that shows which rules of roles are in use.
const rolesPath = "/debug/authorization/roles"

// serveRoles writes, to members of system:masters only, which rules of each
// role have allowed requests since the server started, so that administrators
// can remove unused rules.
func (s *Server) serveRoles(w http.ResponseWriter, r *http.Request, req *request.Request) {
	if !req.User.In(authn.Masters) {
		wire.WriteError(w, r, authz.Forbidden(req.User, &req.Info, "the use of roles is told to "+authn.Masters))
		return
	}
	writePlainJSON(w, r, s.cfg.Access.usage())
}
