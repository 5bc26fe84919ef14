package flowcontrol

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"podium/pkg/apiserver/request"
)

// schema is a FlowSchema that is in effect.
type schema struct {
	name   string
	spec   *flowcontrolv1.FlowSchemaSpec // shared, not modified
	level  *level
	series *series
	uids   [2][]string // header values: of the FlowSchema and its level
}

// flow returns what distinguishes the flow of a request from others of the schema.
func (s *schema) flow(r *request.Request) string {
	switch m := s.spec.DistinguisherMethod; {
	case m == nil:
		return ""
	case m.Type == flowcontrolv1.FlowDistinguisherMethodByUserType:
		return r.User.Name
	}
	return r.Namespace
}

// matches reports whether the schema is for a request.
func (s *schema) matches(r *request.Request) bool {
	for i := range s.spec.Rules {
		rule := &s.spec.Rules[i]
		if !slices.ContainsFunc(rule.Subjects, func(to flowcontrolv1.Subject) bool { return concerns(&to, r.User) }) {
			continue
		}
		if r.IsResource && matchesResource(rule.ResourceRules, &r.Info) || !r.IsResource && matchesPath(rule.NonResourceRules, &r.Info) {
			return true
		}
	}
	return false
}

func concerns(s *flowcontrolv1.Subject, u *request.User) bool {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		return s.User.Name == flowcontrolv1.NameAll || s.User.Name == u.Name
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		return s.Group.Name == flowcontrolv1.NameAll || u.In(s.Group.Name)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		account, ok := strings.CutPrefix(u.Name, accountPrefix)
		namespace, name, _ := strings.Cut(account, ":")
		return ok && namespace == s.ServiceAccount.Namespace && (s.ServiceAccount.Name == flowcontrolv1.NameAll || s.ServiceAccount.Name == name)
	}
	return false
}

func matchesResource(rules []flowcontrolv1.ResourcePolicyRule, info *request.Info) bool {
	for i := range rules {
		r := &rules[i]
		if !among(r.Verbs, info.Verb) || !among(r.APIGroups, info.Group) || !amongResources(r.Resources, info) {
			continue
		}
		if info.Namespace == "" && r.ClusterScope || info.Namespace != "" && among(r.Namespaces, info.Namespace) {
			return true
		}
	}
	return false
}

// among reports whether a list names value, or all values.
func among(list []string, value string) bool {
	for _, s := range list {
		if s == value || s == "*" {
			return true
		}
	}
	return false
}

// amongResources is among for a resource, or for a subresource as in "pods/status".
func amongResources(list []string, info *request.Info) bool {
	if info.Subresource == "" {
		return among(list, info.Resource)
	}
	for _, s := range list {
		resource, sub, _ := strings.Cut(s, "/")
		if s == "*" || resource == info.Resource && sub == info.Subresource {
			return true
		}
	}
	return false
}

func matchesPath(rules []flowcontrolv1.NonResourcePolicyRule, info *request.Info) bool {
	for i := range rules {
		if among(rules[i].Verbs, info.Verb) && slices.ContainsFunc(rules[i].NonResourceURLs, func(url string) bool { return within(info.Path, url) }) {
			return true
		}
	}
	return false
}

// within reports whether path is that of a rule, or below it. A trailing * of the
// rule changes nothing: upstream matches by prefix with and without it.
func within(path, rule string) bool {
	if rule == "*" || rule == path {
		return true
	}
	folder := strings.TrimSuffix(strings.TrimSuffix(rule, "*"), "/")
	return len(path) > len(folder) && path[len(folder)] == '/' && strings.HasPrefix(path, folder)
}
