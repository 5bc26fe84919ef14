package rbac

import (
	"cmp"
	"slices"
)

// Line is the usage of the part of a role's rule that concerns one resource or
// URL.
type Line struct {
	Namespace string   `json:"namespace,omitempty"` // of the role; empty: a ClusterRole
	Role      string   `json:"role"`
	Group     string   `json:"group,omitempty"`
	Resource  string   `json:"resource,omitempty"` // with its subresource
	URL       string   `json:"url,omitempty"`
	Names     []string `json:"names,omitempty"`
	Used      []string `json:"used,omitempty"`   // verbs that have allowed a request
	Unused    []string `json:"unused,omitempty"` // the rule's other verbs
}

// Usage returns, for every role, which of its rules have allowed requests since
// the server started. When a role changes, unchanged rules keep their usage.
func (p *Policy) Usage() []Line {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Line
	for k, r := range p.roles {
		rules := r.rules.Load()
		if rules == nil {
			continue
		}
		out = rules.report(out, k.namespace, k.name)
	}
	Sort(out)
	return out
}

// Sort sorts lines by role, then by what they apply to.
func Sort(lines []Line) {
	slices.SortStableFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.URL, b.URL), slices.Compare(a.Names, b.Names))
	})
}

// report appends the usage of each line to out.
func (r *rules) report(out []Line, namespace, role string) []Line {
	r.each(func(l *line) {
		u := Line{Namespace: namespace, Role: role, Group: l.group, Resource: l.resource, URL: l.url, Names: l.names}
		if l.sub != "" {
			u.Resource += "/" + l.sub
		}
		u.Used, u.Unused = l.usage()
		out = append(out, u)
	})
	return out
}

func (r *rules) each(f func(*line)) {
	for _, lines := range r.exact {
		for _, l := range lines {
			f(l)
		}
	}
	for _, l := range r.wild {
		f(l)
	}
	for _, l := range r.urls {
		f(l)
	}
}

// usage returns the line's used and unused verbs. Uncommon verbs are used if
// any of them is.
func (l *line) usage() (used, unused []string) {
	bits := l.used.Load()
	add := func(verb string, b uint32) {
		if bits&b != 0 {
			used = append(used, verb)
		} else {
			unused = append(unused, verb)
		}
	}
	for i, verb := range verbs {
		if l.any && bits&(1<<i) != 0 || l.verbs&(1<<i) != 0 {
			add(verb, 1<<i)
		}
	}
	for _, verb := range l.rare {
		add(verb, rare)
	}
	if l.any && bits == 0 {
		unused = append(unused, anything)
	}
	return used, unused
}

// inherit copies the usage of unchanged lines from before.
func (r *rules) inherit(before *rules) {
	r.each(func(l *line) {
		before.each(func(old *line) {
			if old.target == l.target && old.url == l.url && slices.Equal(old.names, l.names) {
				l.used.Or(old.used.Load())
			}
		})
	})
}
