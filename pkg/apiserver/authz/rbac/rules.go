package rbac

import (
	"slices"
	"strings"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"

	"podium/pkg/apiserver/request"
)

const anything = "*"

// query is a request with the bit of its verb.
type query struct {
	*request.Info
	verb uint32 // see bit
}

func ask(info *request.Info) query { return query{info, bit(info.Verb)} }

// bit returns a verb's bit in a set of verbs. All uncommon verbs share one.
func bit(verb string) uint32 {
	for i, v := range verbs {
		if v == verb {
			return 1 << i
		}
	}
	return rare
}

var verbs = [...]string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

const rare = 1 << len(verbs)

// rules are the compiled rules of a role, indexed by target.
type rules struct {
	source []rbacv1.PolicyRule
	exact  map[target][]*line
	wild   []*line // with a wildcard in group or resource
	urls   []*line
}

// target is a resource or subresource, or a pattern of them.
type target struct{ group, resource, sub string }

// line is the part of a rule that concerns one target or URL.
type line struct {
	target
	url   string
	verbs uint32   // a set of bits
	rare  []string // uncommon verbs
	any   bool     // all verbs
	names []string // resource names; empty: all objects

	used atomic.Uint32 // verbs that have allowed a request; the rest of line is immutable
}

// compile returns the rules in compiled form. They must not be modified
// afterwards.
func compile(source []rbacv1.PolicyRule) *rules {
	out := &rules{source: source, exact: map[target][]*line{}}
	for i := range source {
		rule := &source[i]
		for _, url := range rule.NonResourceURLs {
			out.urls = append(out.urls, newLine(rule, target{}, url))
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				out.add(newLine(rule, targetOf(group, resource), ""))
			}
		}
	}
	return out
}

// targetOf parses a resource such as "pods", "pods/log", "*" or "*/scale". A
// resource that ends in a slash matches nothing and is kept as it is.
func targetOf(group, resource string) target {
	if name, sub, ok := strings.Cut(resource, "/"); ok && sub != "" {
		return target{group, name, sub}
	}
	return target{group, resource, ""}
}

func newLine(rule *rbacv1.PolicyRule, t target, url string) *line {
	l := &line{target: t, url: url, names: rule.ResourceNames}
	for _, verb := range rule.Verbs {
		switch b := bit(verb); {
		case verb == anything:
			l.any = true
		case b == rare:
			l.rare = append(l.rare, verb)
		default:
			l.verbs |= b
		}
	}
	return l
}

func (r *rules) add(l *line) {
	if l.group == anything || l.resource == anything {
		r.wild = append(r.wild, l)
		return
	}
	r.exact[l.target] = append(r.exact[l.target], l)
}

// allow reports whether a rule allows the request, and records which. It is
// safe for concurrent use.
func (r *rules) allow(q *query) bool {
	if !q.IsResource {
		return allowed(r.urls, q, func(l *line) bool { return l.coversURL(q.Path) })
	}
	for _, l := range r.exact[target{q.Group, q.Resource, q.Subresource}] {
		if l.allows(q) {
			return l.note(q)
		}
	}
	return allowed(r.wild, q, func(l *line) bool { return l.covers(q) })
}

// allowed reports whether one of the lines for which about returns true allows
// the query, and records it.
func allowed(lines []*line, q *query, about func(*line) bool) bool {
	for _, l := range lines {
		if about(l) && l.allows(q) {
			return l.note(q)
		}
	}
	return false
}

// covers reports whether a pattern matches the request's resource. "*" matches
// all resources and subresources.
func (l *line) covers(q *query) bool {
	if l.group != anything && l.group != q.Group {
		return false
	}
	if l.resource == anything {
		return l.sub == "" || l.sub == q.Subresource
	}
	return l.resource == q.Resource && l.sub == q.Subresource
}

// coversURL reports whether a URL, which may end in *, matches a path.
func (l *line) coversURL(path string) bool {
	if prefix := strings.TrimRight(l.url, anything); prefix != l.url {
		return strings.HasPrefix(path, prefix)
	}
	return l.url == path
}

// allows reports whether the line includes the request's verb and name.
func (l *line) allows(q *query) bool {
	switch {
	case l.any:
	case q.verb == rare:
		if !slices.Contains(l.rare, q.Verb) {
			return false
		}
	case l.verbs&q.verb == 0:
		return false
	}
	return len(l.names) == 0 || !q.IsResource || slices.Contains(l.names, q.Name)
}

// note records that the line has allowed a request, and returns true. It writes
// only once per verb, so that the CPU's cache line stays shared.
func (l *line) note(q *query) bool {
	if l.used.Load()&q.verb == 0 {
		l.used.Or(q.verb)
	}
	return true
}

// Rules are compiled rules outside of a role, for other authorizers. They are
// safe for concurrent use.
type Rules struct{ compiled *rules }

// Compile returns rules in compiled form. Do not modify source afterwards.
func Compile(source []rbacv1.PolicyRule) *Rules { return &Rules{compile(source)} }

// Allow reports whether a rule allows the request, and records which.
func (r *Rules) Allow(info *request.Info) bool {
	q := ask(info)
	return r.compiled.allow(&q)
}

// Usage returns the usage of the rules, reported under the name of a role.
func (r *Rules) Usage(role string) []Line { return r.compiled.report(nil, "", role) }
