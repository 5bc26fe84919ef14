package authz

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/request"
)

// Decision is the result of an authorizer.
type Decision int

// The decisions. With NoOpinion the next authorizer of a chain decides; if none
// is left, the request is forbidden.
const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Authorizer decides whether a request is allowed. reason explains the decision
// to the user and to the audit log. Implementations must be safe for concurrent
// use.
type Authorizer interface {
	Authorize(ctx context.Context, user *request.User, info *request.Info) (d Decision, reason string)
}

// Func is a function that implements Authorizer.
type Func func(ctx context.Context, user *request.User, info *request.Info) (Decision, string)

// Authorize calls f.
func (f Func) Authorize(ctx context.Context, user *request.User, info *request.Info) (Decision, string) {
	return f(ctx, user, info)
}

// Chain returns an authorizer that calls all in order until one returns Allow
// or Deny. If none does, it returns NoOpinion with all reasons.
func Chain(all ...Authorizer) Authorizer {
	return Func(func(ctx context.Context, user *request.User, info *request.Info) (Decision, string) {
		reasons := ""
		for _, a := range all {
			d, reason := a.Authorize(ctx, user, info)
			switch {
			case d != NoOpinion:
				return d, reason
			case reasons == "":
				reasons = reason
			case reason != "":
				reasons += "\n" + reason
			}
		}
		return NoOpinion, reasons
	})
}

// Privileged returns an authorizer that allows members of a group everything.
func Privileged(group string) Authorizer {
	return Func(func(_ context.Context, user *request.User, _ *request.Info) (Decision, string) {
		if user.In(group) {
			return Allow, ""
		}
		return NoOpinion, ""
	})
}

// Always returns an authorizer with a fixed decision.
func Always(d Decision, reason string) Authorizer {
	return Func(func(context.Context, *request.User, *request.Info) (Decision, string) { return d, reason })
}

// Forbidden returns the 403 error of a request that no authorizer has allowed.
func Forbidden(user *request.User, info *request.Info, reason string) error {
	text := describe(user, info)
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: info.Group, Resource: info.Resource}, info.Name, fmt.Errorf("%s", text))
}

func describe(user *request.User, info *request.Info) string {
	if !info.IsResource {
		return fmt.Sprintf("User %q cannot %s path %q", user.Name, info.Verb, info.Path)
	}
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	where := "at the cluster scope"
	if info.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", info.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", user.Name, info.Verb, resource, info.Group, where)
}
