package match

import (
	"context"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// authorizerValues returns the values of authorizer and authorizer.requestResource for
// a user and the resource of a request.
func authorizerValues(a authz.Authorizer, u *request.User, of library.Resource) (any, resource ref.Val) {
	info := &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
	return library.NewAuthorizerVal(info, adapted{a}), library.NewResourceAuthorizerVal(info, adapted{a}, of)
}

// adapted makes the server's authorizer one for CEL's library.
type adapted struct{ authz.Authorizer }

// Authorize implements authorizer.Authorizer.
func (a adapted) Authorize(ctx context.Context, of authorizer.Attributes) (authorizer.Decision, string, error) {
	u := of.GetUser()
	info := &request.Info{
		Verb: of.GetVerb(), Path: of.GetPath(), IsResource: of.IsResourceRequest(), Group: of.GetAPIGroup(), Version: of.GetAPIVersion(),
		Namespace: of.GetNamespace(), Resource: of.GetResource(), Subresource: of.GetSubresource(), Name: of.GetName(),
	}
	byField, err := of.GetFieldSelector()
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	byLabel, err := of.GetLabelSelector()
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	var terms []string
	for _, f := range byField {
		terms = append(terms, f.Field+string(f.Operator)+f.Value)
	}
	info.FieldSelector, info.LabelSelector = strings.Join(terms, ","), labels.NewSelector().Add(byLabel...).String()
	d, reason := a.Authorizer.Authorize(ctx, &request.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}, info)
	switch d {
	case authz.Allow:
		return authorizer.DecisionAllow, reason, nil
	case authz.Deny:
		return authorizer.DecisionDeny, reason, nil
	}
	return authorizer.DecisionNoOpinion, reason, nil
}
