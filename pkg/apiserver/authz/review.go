package authz

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"podium/pkg/apiserver/request"
	"podium/pkg/client/access"
)

// Question returns the spec of a SubjectAccessReview for a request.
func Question(user *request.User, info *request.Info) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups, Extra: access.Extra[authorizationv1.ExtraValue](user.Extra),
	}
	if !info.IsResource {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: info.Path, Verb: info.Verb}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: info.Namespace, Verb: info.Verb, Group: info.Group, Version: info.Version,
		Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
		FieldSelector: fieldAttributes(info.FieldSelector), LabelSelector: labelAttributes(info.LabelSelector),
	}
	return spec
}

// These functions omit a selector that cannot be parsed; the review is then
// about all objects.

func fieldAttributes(text string) *authorizationv1.FieldSelectorAttributes {
	sel, err := fields.ParseSelector(text)
	if err != nil || sel.Empty() {
		return nil
	}
	out := &authorizationv1.FieldSelectorAttributes{}
	for _, r := range sel.Requirements() {
		op := metav1.FieldSelectorOpIn
		if r.Operator == selection.NotEquals {
			op = metav1.FieldSelectorOpNotIn
		}
		out.Requirements = append(out.Requirements, metav1.FieldSelectorRequirement{Key: r.Field, Operator: op, Values: []string{r.Value}})
	}
	return out
}

func labelAttributes(text string) *authorizationv1.LabelSelectorAttributes {
	sel, err := labels.Parse(text)
	if err != nil || sel.Empty() {
		return nil
	}
	out := &authorizationv1.LabelSelectorAttributes{}
	all, _ := sel.Requirements()
	for _, r := range all {
		one := metav1.LabelSelectorRequirement{Key: r.Key(), Values: r.ValuesUnsorted()}
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			one.Operator = metav1.LabelSelectorOpIn
		case selection.NotIn, selection.NotEquals:
			one.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			one.Operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			one.Operator = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		out.Requirements = append(out.Requirements, one)
	}
	if len(out.Requirements) == 0 {
		return nil
	}
	return out
}

// Asked returns the request that a SubjectAccessReview describes. path is used
// if resource is nil, and must then be set.
func Asked(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) *request.Info {
	if resource == nil {
		return &request.Info{Path: path.Path, Verb: path.Verb}
	}
	info := &request.Info{
		IsResource: true, Verb: resource.Verb, Group: resource.Group, Version: resource.Version, Namespace: resource.Namespace,
		Resource: resource.Resource, Subresource: resource.Subresource, Name: resource.Name,
	}
	if s := resource.FieldSelector; s != nil {
		info.FieldSelector = s.RawSelector
		if len(s.Requirements) > 0 {
			info.FieldSelector = fieldText(s.Requirements)
		}
	}
	if s := resource.LabelSelector; s != nil {
		info.LabelSelector = s.RawSelector
		if sel, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: s.Requirements}); err == nil && len(s.Requirements) > 0 {
			info.LabelSelector = sel.String()
		}
	}
	return info
}

func fieldText(requirements []metav1.FieldSelectorRequirement) string {
	var out []string
	for _, r := range requirements {
		if len(r.Values) != 1 {
			continue
		}
		switch r.Operator {
		case metav1.FieldSelectorOpIn:
			out = append(out, fields.OneTermEqualSelector(r.Key, r.Values[0]).String())
		case metav1.FieldSelectorOpNotIn:
			out = append(out, fields.OneTermNotEqualSelector(r.Key, r.Values[0]).String())
		}
	}
	return strings.Join(out, ",")
}
