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

// reconcileAtOnce is how many default roles and bindings are looked at at a
// time: a new cluster has none, and everybody waits for them.
const reconcileAtOnce = 16

// ensureRoles makes the default roles and bindings, and adds to those that are
// there what they lack; what an administrator has added stays. It is done once
// in a server's life.
func (s *Server) ensureRoles(ctx context.Context) error {
	if s.rolesDone.Load() {
		return nil
	}
	// Roles first: who is bound to a role that is not there yet is refused
	// things for no reason.
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

// reconciled makes an object what it should be. change says whether it had to.
func reconciled[T scheme.Object](s *Server, resource string, want T, change func(have T) bool) func(context.Context) error {
	gvr := rbacv1.SchemeGroupVersion.WithResource(resource)
	return func(ctx context.Context) error {
		return s.shape(ctx, gvr, want, func(obj scheme.Object) bool {
			return !roles.Protected(obj) && change(obj.(T))
		})
	}
}

// bound does the same for a binding. One that refers to another role is made
// anew: what a binding refers to cannot be changed.
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

// rolesPath is the page that tells which rules have been of use.
const rolesPath = "/debug/authorization/roles"

// serveRoles tells administrators which rules of which roles have allowed
// requests since the server started: what was never of use can be taken away.
func (s *Server) serveRoles(w http.ResponseWriter, r *http.Request, req *request.Request) {
	if !req.User.In(authn.Masters) {
		wire.WriteError(w, r, authz.Forbidden(req.User, &req.Info, "the use of roles is told to "+authn.Masters))
		return
	}
	writePlainJSON(w, r, s.cfg.Access.usage())
}
