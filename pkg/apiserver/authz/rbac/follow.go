package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"podium/pkg/scheme"
)

// Roles is the watch cache follower of Roles in all namespaces, or of
// ClusterRoles.
type Roles struct {
	policy  *Policy
	cluster bool
}

// Roles returns the follower of Roles.
func (p *Policy) Roles() *Roles { return &Roles{p, false} }

// ClusterRoles returns the follower of ClusterRoles.
func (p *Policy) ClusterRoles() *Roles { return &Roles{p, true} }

// Replace replaces all roles.
func (f *Roles) Replace(all []scheme.Object) {
	keep := make(map[key]bool, len(all))
	for _, obj := range all {
		keep[key{obj.GetNamespace(), obj.GetName()}] = true
		f.Put(obj)
	}
	f.policy.mu.Lock()
	defer f.policy.mu.Unlock()
	for k := range f.policy.roles {
		if (k.namespace == "") == f.cluster && !keep[k] {
			f.policy.setRoleLocked(k, nil)
		}
	}
}

// Put adds or updates a role.
func (f *Roles) Put(obj scheme.Object) {
	k := key{obj.GetNamespace(), obj.GetName()}
	switch r := obj.(type) {
	case *rbacv1.Role:
		f.policy.setRole(k, compile(r.Rules))
	case *rbacv1.ClusterRole:
		f.policy.setRole(k, compile(r.Rules))
	}
}

// Remove removes a role, if it is present.
func (f *Roles) Remove(namespace, name string) { f.policy.setRole(key{namespace, name}, nil) }

// Bindings is the watch cache follower of RoleBindings in all namespaces, or of
// ClusterRoleBindings.
type Bindings struct {
	policy  *Policy
	cluster bool
}

// RoleBindings returns the follower of RoleBindings.
func (p *Policy) RoleBindings() *Bindings { return &Bindings{p, false} }

// ClusterRoleBindings returns the follower of ClusterRoleBindings.
func (p *Policy) ClusterRoleBindings() *Bindings { return &Bindings{p, true} }

// Replace replaces all bindings in one step.
func (f *Bindings) Replace(all []scheme.Object) {
	f.policy.edit(func(c *change) {
		keep := make(map[key]bool, len(all))
		for _, obj := range all {
			b := bindingOf(obj)
			keep[b.key] = true
			c.put(b)
		}
		for k := range c.bindings {
			if (k.namespace == "") == f.cluster && !keep[k] {
				c.remove(k)
			}
		}
	})
}

// Put adds or updates a binding.
func (f *Bindings) Put(obj scheme.Object) {
	f.policy.edit(func(c *change) { c.put(bindingOf(obj)) })
}

// Remove removes a binding, if it is present.
func (f *Bindings) Remove(namespace, name string) {
	f.policy.edit(func(c *change) { c.remove(key{namespace, name}) })
}

func bindingOf(obj scheme.Object) *binding {
	b := &binding{key: key{obj.GetNamespace(), obj.GetName()}}
	var ref rbacv1.RoleRef
	switch o := obj.(type) {
	case *rbacv1.RoleBinding:
		ref, b.subjects = o.RoleRef, o.Subjects
	case *rbacv1.ClusterRoleBinding:
		ref, b.subjects = o.RoleRef, o.Subjects
	}
	b.kind, b.ref = ref.Kind, key{b.namespace, ref.Name}
	if ref.Kind == "ClusterRole" {
		b.ref.namespace = ""
	}
	return b
}
