package authz

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/request"
)

// Decision is an authorizer's opinion.
type Decision int

// The opinions. Who has none leaves it to the next.
const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Authorizer decides on requests. reason explains a refusal to the user.
type Authorizer interface {
	Authorize(ctx context.Context, user *request.User, info *request.Info) (d Decision, reason string)
}

// Func is an Authorizer.
type Func func(ctx context.Context, user *request.User, info *request.Info) (Decision, string)

// Authorize calls f.
func (f Func) Authorize(ctx context.Context, user *request.User, info *request.Info) (Decision, string) {
	return f(ctx, user, info)
}

// Chain asks each until one has an opinion.
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

// Privileged allows everything to the members of a group.
func Privileged(group string) Authorizer {
	return Func(func(_ context.Context, user *request.User, _ *request.Info) (Decision, string) {
		if user.In(group) {
			return Allow, ""
		}
		return NoOpinion, ""
	})
}

// Always has one opinion on everything.
func Always(d Decision, reason string) Authorizer {
	return Func(func(context.Context, *request.User, *request.Info) (Decision, string) { return d, reason })
}

// Forbidden is the 403 of a request that nobody has allowed.
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
