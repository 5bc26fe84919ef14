package rbac

import (
	"cmp"
	"slices"
)

// Line is what one rule of a role says of one resource or URL, and whether it
// was ever needed.
type Line struct {
	Namespace string   `json:"namespace,omitempty"` // of the role; none: a cluster role
	Role      string   `json:"role"`
	Group     string   `json:"group,omitempty"`
	Resource  string   `json:"resource,omitempty"` // with its subresource
	URL       string   `json:"url,omitempty"`
	Names     []string `json:"names,omitempty"`
	Used      []string `json:"used,omitempty"`   // verbs that have allowed a request
	Unused    []string `json:"unused,omitempty"` // the others
}

// Usage tells of every role which of its rules have allowed requests since the
// server started. A rule that has changed meanwhile starts anew, one that only
// stands in another place does not.
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

// Sort orders lines by role, then by what they are about.
func Sort(lines []Line) {
	slices.SortStableFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.URL, b.URL), slices.Compare(a.Names, b.Names))
	})
}

// report appends what is to say of each line.
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

// usage splits the line's verbs. The rare ones count together.
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

// inherit takes over the notes of the lines that have not changed.
func (r *rules) inherit(before *rules) {
	r.each(func(l *line) {
		before.each(func(old *line) {
			if old.target == l.target && old.url == l.url && slices.Equal(old.names, l.names) {
				l.used.Or(old.used.Load())
			}
		})
	})
}
