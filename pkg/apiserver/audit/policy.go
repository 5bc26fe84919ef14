package audit

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Level sets how much of a request is recorded.
type Level string

// The levels, from least to most.
const (
	LevelNone            Level = "None"
	LevelMetadata        Level = "Metadata"
	LevelRequest         Level = "Request"
	LevelRequestResponse Level = "RequestResponse"
)

// Stage is the progress of a request at which an event is generated.
type Stage string

// The stages.
const (
	StageRequestReceived  Stage = "RequestReceived"
	StageResponseStarted  Stage = "ResponseStarted"
	StageResponseComplete Stage = "ResponseComplete"
	StagePanic            Stage = "Panic"
)

var (
	levels = []Level{LevelNone, LevelMetadata, LevelRequest, LevelRequestResponse}
	stages = []Stage{StageRequestReceived, StageResponseStarted, StageResponseComplete, StagePanic}
)

// Policy is upstream's Policy, audit.k8s.io/v1.
// https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
type Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Rules             []Rule  `json:"rules"`
	OmitStages        []Stage `json:"omitStages,omitempty"`
	OmitManagedFields bool    `json:"omitManagedFields,omitempty"`
}

// Rule sets the level of the requests that it matches. The first matching rule
// of a policy applies.
type Rule struct {
	Level             Level            `json:"level"`
	Users             []string         `json:"users,omitempty"`
	UserGroups        []string         `json:"userGroups,omitempty"`
	Verbs             []string         `json:"verbs,omitempty"`
	Resources         []GroupResources `json:"resources,omitempty"`
	Namespaces        []string         `json:"namespaces,omitempty"`
	NonResourceURLs   []string         `json:"nonResourceURLs,omitempty"`
	OmitStages        []Stage          `json:"omitStages,omitempty"`
	OmitManagedFields *bool            `json:"omitManagedFields,omitempty"`
}

// GroupResources are resources of one API group.
type GroupResources struct {
	Group         string   `json:"group,omitempty"`
	Resources     []string `json:"resources,omitempty"`
	ResourceNames []string `json:"resourceNames,omitempty"`
}

var policyKind = schema.GroupVersionKind{Group: "audit.k8s.io", Version: "v1", Kind: "Policy"}

// ParsePolicy parses and validates the content of a policy file. Its error
// contains every problem.
func ParsePolicy(data []byte) (*Policy, error) {
	p := &Policy{}
	decodeErr := scheme.DecodeFile(data, policyKind, p)
	if decodeErr != nil && len(p.Rules) == 0 {
		return nil, decodeErr
	}
	if err := errors.Join(decodeErr, p.validate().ToAggregate()); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Policy) validate() field.ErrorList {
	rules := field.NewPath("rules")
	if len(p.Rules) == 0 {
		return field.ErrorList{field.Required(rules, "a policy without rules records nothing")}
	}
	errs := validateStages(p.OmitStages, field.NewPath("omitStages"))
	for i := range p.Rules {
		errs = append(errs, p.Rules[i].validate(rules.Index(i))...)
	}
	return errs
}

func (r *Rule) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case r.Level == "":
		errs = append(errs, field.Required(path.Child("level"), ""))
	case !slices.Contains(levels, r.Level):
		errs = append(errs, field.NotSupported(path.Child("level"), r.Level, levels))
	}
	urls := path.Child("nonResourceURLs")
	for i, url := range r.NonResourceURLs {
		if url == "*" {
			continue
		}
		if !strings.HasPrefix(url, "/") {
			errs = append(errs, field.Invalid(urls.Index(i), url, "non-resource URL rules must begin with a '/' character"))
		}
		if at := strings.IndexByte(url, '*'); at >= 0 && at < len(url)-1 {
			errs = append(errs, field.Invalid(urls.Index(i), url, "non-resource URL wildcards '*' must be the final character of the rule"))
		}
	}
	if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
		errs = append(errs, field.Invalid(urls, r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
	}
	for i := range r.Resources {
		errs = append(errs, r.Resources[i].validate(path.Child("resources").Index(i))...)
	}
	return append(errs, validateStages(r.OmitStages, path.Child("omitStages"))...)
}

func (g *GroupResources) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if g.Group != "" && g.Group != "*" {
		if problems := validation.NameIsDNSSubdomain(g.Group, false); len(problems) > 0 {
			errs = append(errs, field.Invalid(path.Child("group"), g.Group, strings.Join(problems, ",")))
		}
	}
	if len(g.ResourceNames) > 0 && len(g.Resources) == 0 {
		errs = append(errs, field.Invalid(path.Child("resourceNames"), g.ResourceNames, "using resourceNames requires at least one resource"))
	}
	return errs
}

func validateStages(names []Stage, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		if !slices.Contains(stages, name) {
			errs = append(errs, field.NotSupported(path.Index(i), name, stages))
		}
	}
	return errs
}

// decision is the result of the policy for one request.
type decision struct {
	level             Level
	omit              [2][]Stage // the stages that the policy and the rule omit
	omitManagedFields bool
}

func (d *decision) omits(s Stage) bool {
	return slices.Contains(d.omit[0], s) || slices.Contains(d.omit[1], s)
}

// decide returns the decision for a request; user is nil if it is not
// authenticated.
func (p *Policy) decide(user *request.User, info *request.Info) decision {
	d := decision{level: LevelNone, omit: [2][]Stage{p.OmitStages}, omitManagedFields: p.OmitManagedFields}
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.matches(user, info) {
			continue
		}
		d.level, d.omit[1] = r.Level, r.OmitStages
		if r.OmitManagedFields != nil {
			d.omitManagedFields = *r.OmitManagedFields
		}
		break
	}
	return d
}

// matches reports whether the rule applies to a request. user is nil if it is
// not authenticated; rules with users or groups then do not match.
func (r *Rule) matches(user *request.User, info *request.Info) bool {
	if len(r.Users) > 0 && (user == nil || !slices.Contains(r.Users, user.Name)) {
		return false
	}
	if len(r.UserGroups) > 0 && (user == nil || !slices.ContainsFunc(user.Groups, func(g string) bool { return slices.Contains(r.UserGroups, g) })) {
		return false
	}
	if len(r.Verbs) > 0 && !slices.Contains(r.Verbs, info.Verb) {
		return false
	}
	switch {
	case len(r.Namespaces) > 0 || len(r.Resources) > 0:
		return info.IsResource && r.matchesResource(info)
	case len(r.NonResourceURLs) > 0:
		return !info.IsResource && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool { return matchesURL(url, info.Path) })
	}
	return true
}

func (r *Rule) matchesResource(info *request.Info) bool {
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, info.Namespace) {
		return false
	}
	if len(r.Resources) == 0 {
		return true
	}
	for i := range r.Resources {
		if r.Resources[i].matches(info) {
			return true
		}
	}
	return false
}

func (g *GroupResources) matches(info *request.Info) bool {
	if g.Group != info.Group && g.Group != "*" {
		return false
	}
	if len(g.Resources) == 0 {
		return true
	}
	if len(g.ResourceNames) > 0 && !slices.Contains(g.ResourceNames, info.Name) {
		return false
	}
	return slices.ContainsFunc(g.Resources, func(name string) bool { return matchesName(name, info) })
}

// matchesName reports whether a resource of a rule, such as pods, pods/log,
// pods/*, */scale or *, matches a request.
func matchesName(name string, info *request.Info) bool {
	if name == "*" {
		return true
	}
	resource, sub, hasSub := strings.Cut(name, "/")
	switch {
	case !hasSub:
		return resource == info.Resource && info.Subresource == ""
	case resource == "*":
		return info.Subresource != "" && sub == info.Subresource
	case sub == "*":
		return resource == info.Resource
	}
	return resource == info.Resource && sub == info.Subresource
}

// matchesURL reports whether a path matches a pattern, which may end in *.
func matchesURL(pattern, path string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, start)
	}
	return pattern == path
}

// confidential reports whether the request's or the response's body may contain
// a secret or a token.
func confidential(info *request.Info) bool {
	switch info.Resource {
	case "secrets":
		return info.Group == ""
	case "serviceaccounts":
		return info.Subresource == "token"
	case "tokenreviews":
		return true
	}
	return false
}

// confidentialKinds are the kinds of such bodies, in case one occurs in another
// resource's request.
var confidentialKinds = []string{"Secret", "SecretList", "TokenReview", "TokenRequest"}
