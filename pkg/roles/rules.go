package roles

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

const anything = "*"

// Missing returns the parts of wanted that no single rule of have covers, each reduced to
// one verb of one resource or URL.
func Missing(have, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for i := range wanted {
		for _, part := range parts(&wanted[i]) {
			if !slices.ContainsFunc(have, func(r rbacv1.PolicyRule) bool { return covers(&r, &part) }) {
				out = append(out, part)
			}
		}
	}
	return out
}

// parts splits a rule into rules of one verb and one resource or URL.
func parts(r *rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				one := rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}}
				if len(r.ResourceNames) == 0 {
					out = append(out, one)
				}
				for _, name := range r.ResourceNames {
					one.ResourceNames = []string{name}
					out = append(out, one)
				}
			}
		}
	}
	for _, url := range r.NonResourceURLs {
		for _, verb := range r.Verbs {
			out = append(out, rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: []string{url}})
		}
	}
	return out
}

// covers reports whether a rule allows everything that part allows.
func covers(r, part *rbacv1.PolicyRule) bool {
	if !has(r.Verbs, part.Verbs[0]) {
		return false
	}
	if len(part.NonResourceURLs) > 0 {
		return slices.ContainsFunc(r.NonResourceURLs, func(url string) bool { return coversURL(url, part.NonResourceURLs[0]) })
	}
	if !has(r.APIGroups, part.APIGroups[0]) || !coversResource(r.Resources, part.Resources[0]) {
		return false
	}
	return len(r.ResourceNames) == 0 || len(part.ResourceNames) > 0 && slices.Contains(r.ResourceNames, part.ResourceNames[0])
}

func has(list []string, value string) bool {
	return slices.Contains(list, anything) || slices.Contains(list, value)
}

func coversResource(list []string, resource string) bool {
	if has(list, resource) {
		return true
	}
	_, sub, ok := strings.Cut(resource, "/")
	return ok && slices.Contains(list, "*/"+sub)
}

func coversURL(pattern, url string) bool {
	prefix, open := strings.CutSuffix(pattern, anything)
	return pattern == url || open && strings.HasPrefix(url, strings.TrimRight(prefix, anything))
}

// Compact merges rules that differ only in their verbs.
func Compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		i := slices.IndexFunc(out, func(o rbacv1.PolicyRule) bool {
			return slices.Equal(o.APIGroups, r.APIGroups) && slices.Equal(o.Resources, r.Resources) &&
				slices.Equal(o.ResourceNames, r.ResourceNames) && slices.Equal(o.NonResourceURLs, r.NonResourceURLs)
		})
		if i < 0 {
			r.Verbs = slices.Clone(r.Verbs)
			out = append(out, r)
			continue
		}
		for _, verb := range r.Verbs {
			if !slices.Contains(out[i].Verbs, verb) {
				out[i].Verbs = append(out[i].Verbs, verb)
			}
		}
	}
	return out
}

// Text returns a rule in one line, for messages.
func Text(r *rbacv1.PolicyRule) string {
	var out []string
	add := func(name string, values []string) {
		if len(values) > 0 {
			out = append(out, fmt.Sprintf("%s:%q", name, values))
		}
	}
	add("APIGroups", r.APIGroups)
	add("Resources", r.Resources)
	add("NonResourceURLs", r.NonResourceURLs)
	add("ResourceNames", r.ResourceNames)
	add("Verbs", r.Verbs)
	return "{" + strings.Join(out, ", ") + "}"
}
