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

// Policy holds all roles and bindings, by subject. It is safe for concurrent
// use; decisions take no lock.
type Policy struct {
	grants atomic.Pointer[grants]

	mu       sync.Mutex // serializes changes
	roles    map[key]*role
	bindings map[key]*binding
}

// key is the name of a role or a binding, or of a subject in a namespace. An
// empty namespace stands for a ClusterRole, a ClusterRoleBinding, or a
// subject's cluster-wide grants.
type key struct{ namespace, name string }

// role is the target of bindings. It exists as long as it has rules or a
// binding refers to it.
type role struct {
	rules    atomic.Pointer[rules] // nil: the role does not exist
	bindings int                   // the number of bindings that refer to it
}

// binding is a RoleBinding or ClusterRoleBinding with the role that it refers
// to. It is immutable once in a policy.
type binding struct {
	key
	ref      key
	role     *role
	kind     string // of the role: Role or ClusterRole
	subjects []rbacv1.Subject
}

// grants are the grants of each subject. They are immutable: a change publishes
// a copy. A service account is stored as the user that it authenticates as.
type grants struct {
	users, groups map[key][]grant
}

// grant is a role that a binding grants to a subject.
type grant struct {
	role    *role
	binding *binding
	reason  string // the reason in the audit log
}

// New returns a policy without roles and bindings.
func New() *Policy {
	p := &Policy{roles: map[key]*role{}, bindings: map[key]*binding{}}
	p.grants.Store(&grants{})
	return p
}

// Authorize implements authz.Authorizer. It returns Allow or NoOpinion, never
// Deny.
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

// in returns the first grant of a namespace's bindings that allows the query,
// nil if there is none.
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

// first returns the first grant whose role allows the query, nil if there is
// none.
func first(all []grant, q *query) *grant {
	for i := range all {
		if rules := all[i].role.rules.Load(); rules != nil && rules.allow(q) {
			return &all[i]
		}
	}
	return nil
}

// RulesFor returns all rules that apply to a user in a namespace, or
// cluster-wide if namespace is empty.
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

// RoleRules returns the rules of a Role, or of a ClusterRole if namespace is
// empty. found reports whether it exists. The caller must not modify the rules.
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

// setRole sets the rules of a role; nil deletes it.
func (p *Policy) setRole(k key, rules *rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setRoleLocked(k, rules)
}

// setRoleLocked is setRole for a caller that holds p.mu.
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

// forgetLocked removes a role that has no rules and no bindings. The caller
// holds p.mu.
func (p *Policy) forgetLocked(k key, r *role) {
	if r.bindings == 0 && r.rules.Load() == nil {
		delete(p.roles, k)
	}
}

// change is a change of bindings in progress.
type change struct {
	*Policy
	next grants
}

// edit calls f on a copy of the grants, then publishes the copy. Decisions see
// all changes of f at once.
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

// remove removes a binding's grants, if the binding exists.
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

// put adds a binding's grants and removes those of its previous version.
func (c *change) put(b *binding) {
	if r := c.roles[b.ref]; r != nil {
		b.role = r
	} else {
		b.role = &role{}
		c.roles[b.ref] = b.role
	}
	b.role.bindings++ // before remove, which would drop an unreferenced role
	c.remove(b.key)
	c.bindings[b.key] = b
	c.each(b, func(m map[key][]grant, at key, who string) {
		m[at] = append(slices.Clip(m[at]), grant{role: b.role, binding: b, reason: b.reason(who)})
	})
}

// each calls f for every subject of a binding, with the map and key of its
// grants and its description.
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

// reason returns upstream's text for a decision to allow.
func (b *binding) reason(who string) string {
	kind, name := "ClusterRoleBinding", b.name
	if b.namespace != "" {
		kind, name = "RoleBinding", b.name+"/"+b.namespace
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s", kind, name, b.kind, b.ref.name, who)
}
