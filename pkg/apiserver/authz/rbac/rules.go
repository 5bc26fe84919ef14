package rbac

import (
	"slices"
	"strings"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"

	"podium/pkg/apiserver/request"
)

const anything = "*"

// query is a request as rules look at it.
type query struct {
	*request.Info
	verb uint32 // its bit
}

func ask(info *request.Info) query { return query{info, bit(info.Verb)} }

// bit is a verb's place in a set of verbs. All that are rare share the last.
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

// rules are a role's rules, by what they are about.
type rules struct {
	source []rbacv1.PolicyRule
	exact  map[target][]*line
	wild   []*line // for any group, any resource, or any resource with some subresource
	urls   []*line
}

// target is a resource or a subresource, or a pattern of them.
type target struct{ group, resource, sub string }

// line is what a rule says of one target or URL.
type line struct {
	target
	url   string
	verbs uint32   // the set of them
	rare  []string // verbs without a bit of their own
	any   bool     // all verbs
	names []string // the only objects; none: all

	used atomic.Uint32 // the verbs that have allowed a request
}

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

// targetOf reads "pods", "pods/log", "*" or "*/scale". What has a slash at its
// end names nothing that exists and stays whole.
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

// allow says whether a rule allows the request, and notes which.
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

func allowed(lines []*line, q *query, about func(*line) bool) bool {
	for _, l := range lines {
		if about(l) && l.allows(q) {
			return l.note(q)
		}
	}
	return false
}

// covers says whether a pattern includes what the request is about. "*" is all
// resources and all their subresources.
func (l *line) covers(q *query) bool {
	if l.group != anything && l.group != q.Group {
		return false
	}
	if l.resource == anything {
		return l.sub == "" || l.sub == q.Subresource
	}
	return l.resource == q.Resource && l.sub == q.Subresource
}

func (l *line) coversURL(path string) bool {
	if prefix := strings.TrimRight(l.url, anything); prefix != l.url {
		return strings.HasPrefix(path, prefix)
	}
	return l.url == path
}

// allows says whether the verb and the name are among the line's.
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

// note remembers that the line was of use. A write only happens once a verb:
// the cache line stays shared.
func (l *line) note(q *query) bool {
	if l.used.Load()&q.verb == 0 {
		l.used.Or(q.verb)
	}
	return true
}

// Rules are rules without a role: what an authorizer other than the policy
// allows.
type Rules struct{ compiled *rules }

// Compile makes rules ready to decide.
func Compile(source []rbacv1.PolicyRule) *Rules { return &Rules{compile(source)} }

// Allow says whether a rule allows the request, and notes which.
func (r *Rules) Allow(info *request.Info) bool {
	q := ask(info)
	return r.compiled.allow(&q)
}

// Usage tells which of the rules have allowed requests, under the name of a
// role.
func (r *Rules) Usage(role string) []Line { return r.compiled.report(nil, "", role) }
