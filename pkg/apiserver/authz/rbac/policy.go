package rbac

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// Policy is all roles and bindings, by subject. Its methods may be called
// concurrently; those that decide take no lock.
type Policy struct {
	grants atomic.Pointer[grants]

	mu       sync.Mutex // one change at a time
	roles    map[key]*role
	bindings map[key]*binding
}

// key names a role or a binding, or a subject in a namespace. Without a
// namespace it is a cluster role, a cluster role binding, a subject everywhere.
type key struct{ namespace, name string }

// role is what bindings refer to. It stays while the rules behind its name
// come, change and go.
type role struct {
	rules    atomic.Pointer[rules] // nil: there is no such role
	bindings int                   // how many refer to it
}

type binding struct {
	key
	ref      key
	role     *role
	kind     string // of the role
	subjects []rbacv1.Subject
}

// grants are what each subject has. They are never modified: a change makes new
// ones. A service account is the user it authenticates as.
type grants struct {
	users, groups map[key][]grant
}

// grant is one role that one binding gives to a subject.
type grant struct {
	role    *role
	binding *binding
	reason  string // why it allows, for the audit log
}

// New is a policy that allows nothing.
func New() *Policy {
	p := &Policy{roles: map[key]*role{}, bindings: map[key]*binding{}}
	p.grants.Store(&grants{})
	return p
}

// Authorize allows what a role of the user allows; it never denies.
func (p *Policy) Authorize(_ context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
	g := p.grants.Load()
	q := ask(info)
	if found := g.everywhere(user, &q); found != nil {
		return authz.Allow, found.reason
	}
	if info.IsResource && info.Namespace != "" {
		if found := g.in(info.Namespace, user, &q); found != nil {
			return authz.Allow, found.reason
		}
	}
	return authz.NoOpinion, ""
}

func (g *grants) everywhere(user *request.User, q *query) *grant { return g.in("", user, q) }

// in finds what allows the query among the bindings of a namespace.
func (g *grants) in(namespace string, user *request.User, q *query) *grant {
	if found := first(g.users[key{namespace, user.Name}], q); found != nil {
		return found
	}
	for _, group := range user.Groups {
		if found := first(g.groups[key{namespace, group}], q); found != nil {
			return found
		}
	}
	return nil
}

func first(all []grant, q *query) *grant {
	for i := range all {
		if rules := all[i].role.rules.Load(); rules != nil && rules.allow(q) {
			return &all[i]
		}
	}
	return nil
}

// RulesFor are all rules that hold for a user in a namespace, or everywhere.
func (p *Policy) RulesFor(user *request.User, namespace string) []rbacv1.PolicyRule {
	g := p.grants.Load()
	var out []rbacv1.PolicyRule
	collect := func(all []grant) {
		for i := range all {
			if rules := all[i].role.rules.Load(); rules != nil {
				out = append(out, rules.source...)
			}
		}
	}
	scopes := []string{""}
	if namespace != "" {
		scopes = append(scopes, namespace)
	}
	for _, ns := range scopes {
		collect(g.users[key{ns, user.Name}])
		for _, group := range user.Groups {
			collect(g.groups[key{ns, group}])
		}
	}
	return out
}

// RoleRules are the rules of a role, or of a cluster role if namespace is
// empty; found says whether there is one.
func (p *Policy) RoleRules(namespace, name string) (all []rbacv1.PolicyRule, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.roles[key{namespace, name}]; r != nil {
		if rules := r.rules.Load(); rules != nil {
			return rules.source, true
		}
	}
	return nil, false
}

// setRole changes the rules behind a name; nil: it is gone.
func (p *Policy) setRole(k key, rules *rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setRoleLocked(k, rules)
}

func (p *Policy) setRoleLocked(k key, rules *rules) {
	r := p.roles[k]
	if r == nil {
		if rules == nil {
			return
		}
		r = &role{}
		p.roles[k] = r
	}
	if before := r.rules.Load(); before != nil && rules != nil {
		rules.inherit(before)
	}
	r.rules.Store(rules)
	p.forgetLocked(k, r)
}

// forgetLocked drops a role that is not there and that nothing refers to.
func (p *Policy) forgetLocked(k key, r *role) {
	if r.bindings == 0 && r.rules.Load() == nil {
		delete(p.roles, k)
	}
}

// change is a change of bindings in the making.
type change struct {
	*Policy
	next grants
}

// edit makes a new state of the grants by what f does, and publishes it.
func (p *Policy) edit(f func(*change)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.grants.Load()
	c := &change{Policy: p, next: grants{users: cloned(now.users), groups: cloned(now.groups)}}
	f(c)
	p.grants.Store(&c.next)
}

func cloned(m map[key][]grant) map[key][]grant {
	if m == nil {
		return map[key][]grant{}
	}
	return maps.Clone(m)
}

// remove takes away what a binding gives.
func (c *change) remove(k key) {
	b := c.bindings[k]
	if b == nil {
		return
	}
	delete(c.bindings, k)
	c.each(b, func(m map[key][]grant, at key, _ string) {
		rest := slices.DeleteFunc(slices.Clone(m[at]), func(g grant) bool { return g.binding == b })
		if len(rest) == 0 {
			delete(m, at)
		} else {
			m[at] = rest
		}
	})
	b.role.bindings--
	c.forgetLocked(b.ref, b.role)
}

// put gives what a binding says, in place of what it said before.
func (c *change) put(b *binding) {
	if r := c.roles[b.ref]; r != nil {
		b.role = r
	} else {
		b.role = &role{}
		c.roles[b.ref] = b.role
	}
	b.role.bindings++ // before the old one lets go of it
	c.remove(b.key)
	c.bindings[b.key] = b
	c.each(b, func(m map[key][]grant, at key, who string) {
		m[at] = append(slices.Clip(m[at]), grant{role: b.role, binding: b, reason: b.reason(who)})
	})
}

// each calls f for every subject of a binding.
func (c *change) each(b *binding, f func(m map[key][]grant, at key, who string)) {
	for i := range b.subjects {
		s := &b.subjects[i]
		switch s.Kind {
		case rbacv1.UserKind:
			f(c.next.users, key{b.namespace, s.Name}, fmt.Sprintf("User %q", s.Name))
		case rbacv1.GroupKind:
			f(c.next.groups, key{b.namespace, s.Name}, fmt.Sprintf("Group %q", s.Name))
		case rbacv1.ServiceAccountKind:
			if namespace := cmp.Or(s.Namespace, b.namespace); namespace != "" {
				f(c.next.users, key{b.namespace, "system:serviceaccount:" + namespace + ":" + s.Name}, fmt.Sprintf("ServiceAccount %q", s.Name+"/"+namespace))
			}
		}
	}
}

// reason is upstream's text of a decision to allow.
func (b *binding) reason(who string) string {
	kind, name := "ClusterRoleBinding", b.name
	if b.namespace != "" {
		kind, name = "RoleBinding", b.name+"/"+b.namespace
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s", kind, name, b.kind, b.ref.name, who)
}
