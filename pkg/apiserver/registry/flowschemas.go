package registry

import (
	"fmt"
	"slices"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/flowcontrol/defaults"
	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

const defaultPrecedence = 1000

func flowSchemas(k *scheme.Kind, _ Config) *Kind {
	spec := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	life := lifecycle[*flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaSpec, flowcontrolv1.FlowSchemaStatus]{
		parts: func(s *flowcontrolv1.FlowSchema) (*flowcontrolv1.FlowSchemaSpec, *flowcontrolv1.FlowSchemaStatus) {
			return &s.Spec, &s.Status
		},
	}
	return Of[*flowcontrolv1.FlowSchema]{
		Default:  func(s *flowcontrolv1.FlowSchema) { orDefault(&s.Spec.MatchingPrecedence, defaultPrecedence) },
		Prepare:  life.prepare,
		Validate: func(new, _ *flowcontrolv1.FlowSchema) field.ErrorList { return validateFlowSchema(new) },
		Columns: columns(column("PriorityLevel", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
			column("MatchingPrecedence", spec["matchingPrecedence"]), column("DistinguisherMethod", spec["distinguisherMethod"]), ageColumn(),
			column("MissingPL", "references a broken or non-existent PriorityLevelConfiguration")),
		Row:                      flowSchemaRow,
		AllowUnconditionalUpdate: true,
		Subresources:             []*Subresource{life.status(k, keepMetadata, validateFlowStatus)},
	}.Kind(k)
}

// keepMetadata restores the metadata that users set.
func keepMetadata[T scheme.Object](new, old T) {
	new.SetLabels(old.GetLabels())
	new.SetAnnotations(old.GetAnnotations())
	new.SetFinalizers(old.GetFinalizers())
	new.SetOwnerReferences(old.GetOwnerReferences())
}

func validateFlowSchema(s *flowcontrolv1.FlowSchema) field.ErrorList {
	path, spec := field.NewPath("spec"), &s.Spec
	var errs field.ErrorList
	for _, fixed := range defaults.Schemas() {
		if fixed.Name == s.Name && defaults.Mandatory(s.Name) && !apiequality.Semantic.DeepEqual(fixed.Spec, s.Spec) {
			errs = append(errs, field.Invalid(path, s.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", s.Name)))
		}
	}
	precedence, n := path.Child("matchingPrecedence"), spec.MatchingPrecedence
	if n <= 0 {
		errs = append(errs, field.Invalid(precedence, n, "must be a positive value"))
	}
	if n > flowcontrolv1.FlowSchemaMaxMatchingPrecedence {
		errs = append(errs, field.Invalid(precedence, n, fmt.Sprintf("must not be greater than %d", flowcontrolv1.FlowSchemaMaxMatchingPrecedence)))
	}
	if n == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt {
		errs = append(errs, field.Invalid(precedence, n, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := spec.DistinguisherMethod; m != nil {
		errs = append(errs, fieldcheck.Supported(m.Type, path.Child("distinguisherMethod", "type"),
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType)...)
	}
	level := path.Child("priorityLevelConfiguration", "name")
	if spec.PriorityLevelConfiguration.Name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, validateSubdomain(spec.PriorityLevelConfiguration.Name, level)...)
	}
	for i := range spec.Rules {
		errs = append(errs, validateFlowRule(&spec.Rules[i], path.Child("rules").Index(i))...)
	}
	return errs
}

func validateFlowStatus(new, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	return validateConditionTypes(new.Status.Conditions, func(c *flowcontrolv1.FlowSchemaCondition) flowcontrolv1.FlowSchemaConditionType { return c.Type },
		field.NewPath("status", "conditions"))
}

func validateFlowRule(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateFlowSubject(&r.Subjects[i], path.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateResourceRule(&r.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range r.NonResourceRules {
		rule, at := &r.NonResourceRules[i], path.Child("nonResourceRules").Index(i)
		errs = append(errs, validateFlowVerbs(rule.Verbs, at.Child("verbs"))...)
		urls := at.Child("nonResourceURLs")
		errs = append(errs, validateAllOrSome(rule.NonResourceURLs, "nonResourceURLs must contain at least one value", "non-resource URLs", urls)...)
		if !slices.Contains(rule.NonResourceURLs, flowcontrolv1.NonResourceAll) {
			for j, url := range rule.NonResourceURLs {
				errs = append(errs, validateURLPattern(url, urls.Index(j))...)
			}
		}
	}
	return errs
}

// validateFlowSubject checks that only the member that the kind names is set.
func validateFlowSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser}
	if bad := fieldcheck.Supported(s.Kind, path.Child("kind"), known...); len(bad) > 0 {
		return bad
	}
	for _, member := range []struct {
		kind  flowcontrolv1.SubjectKind
		field string
		set   bool
		check func(path *field.Path) field.ErrorList
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil, func(at *field.Path) field.ErrorList { return validateFlowAccount(s.ServiceAccount, at) }},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil, func(at *field.Path) field.ErrorList { return required(s.User.Name, at.Child("name")) }},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil, func(at *field.Path) field.ErrorList { return required(s.Group.Name, at.Child("name")) }},
	} {
		at := path.Child(member.field)
		switch own := s.Kind == member.kind; {
		case own && !member.set:
			errs = append(errs, field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", member.field, member.kind)))
		case own:
			errs = append(errs, member.check(at)...)
		case member.set:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", member.field, member.kind)))
		}
	}
	return errs
}

func required(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func validateFlowAccount(s *flowcontrolv1.ServiceAccountSubject, path *field.Path) field.ErrorList {
	errs := required(s.Name, path.Child("name"))
	if s.Name != "" && s.Name != flowcontrolv1.NameAll {
		errs = append(errs, fieldcheck.Invalid(apivalidation.ValidateServiceAccountName(s.Name, false), path.Child("name"), s.Name)...)
	}
	if s.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, fieldcheck.Invalid(apivalidation.ValidateNamespaceName(s.Namespace, false), path.Child("namespace"), s.Namespace)...)
}

// validateAllOrSome checks that a list has values, and that "*" is the only one.
func validateAllOrSome(list []string, missing, things string, path *field.Path) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, missing)}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other "+things)}
	}
	return nil
}

func validateFlowVerbs(verbs []string, path *field.Path) field.ErrorList {
	if bad := validateAllOrSome(verbs, "verbs must contain at least one value", "verbs", path); len(bad) > 0 {
		return bad
	}
	known := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	for _, v := range verbs {
		if v != flowcontrolv1.VerbAll && !slices.Contains(known, v) {
			return field.ErrorList{field.NotSupported(path, verbs, known)}
		}
	}
	return nil
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateFlowVerbs(r.Verbs, path.Child("verbs"))
	errs = append(errs, validateAllOrSome(r.APIGroups, "resource rules must supply at least one api group", "api groups", path.Child("apiGroups"))...)
	errs = append(errs, validateAllOrSome(r.Resources, "resource rules must supply at least one resource", "resources", path.Child("resources"))...)
	namespaces := path.Child("namespaces")
	if len(r.Namespaces) == 0 && r.ClusterScope {
		return errs
	}
	errs = append(errs, validateAllOrSome(r.Namespaces, "resource rules that are not cluster scoped must supply at least one namespace", "namespaces", namespaces)...)
	if slices.Contains(r.Namespaces, flowcontrolv1.NamespaceEvery) {
		return errs
	}
	for i, ns := range r.Namespaces {
		for _, text := range apivalidation.ValidateNamespaceName(ns, false) {
			errs = append(errs, field.Invalid(namespaces.Index(i), ns, "each member of this list must be '*' or a DNS-1123 label; "+text))
		}
	}
	return errs
}

// validateURLPattern validates a URL path, which may end with "/*".
func validateURLPattern(pattern string, path *field.Path) field.ErrorList {
	invalid := func(text string) field.ErrorList { return field.ErrorList{field.Invalid(path, pattern, text)} }
	stars := strings.Count(pattern, "*")
	switch {
	case pattern == "":
		return invalid("must not be empty")
	case !strings.HasPrefix(pattern, "/"):
		return invalid("must start with slash")
	case strings.Contains(pattern, " "):
		return invalid("must not contain white-space")
	case strings.Contains(pattern, "//"):
		return invalid("must not contain double slash")
	case stars > 1 || stars == 1 && !strings.HasSuffix(pattern, "/*"):
		return invalid("wildcard can only do suffix matching")
	}
	return nil
}

func flowSchemaRow(s *flowcontrolv1.FlowSchema, now time.Time) []any {
	method, dangling := "<none>", "?"
	if m := s.Spec.DistinguisherMethod; m != nil {
		method = string(m.Type)
	}
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			dangling = string(c.Status)
		}
	}
	return []any{s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method, age(s.CreationTimestamp, now), dangling}
}
