package authz

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/authn"
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
		var reasons []string
		for _, a := range all {
			d, reason := a.Authorize(ctx, user, info)
			if d != NoOpinion {
				return d, reason
			}
			if reason != "" {
				reasons = append(reasons, reason)
			}
		}
		return NoOpinion, strings.Join(reasons, ", ")
	})
}

// System allows everything to the cluster's administrators and to its own
// daemons.
func System() Authorizer {
	return Func(func(_ context.Context, user *request.User, _ *request.Info) (Decision, string) {
		if user.In(authn.Masters) || user.In("system:nodes") {
			return Allow, ""
		}
		switch user.Name {
		case "system:kube-scheduler", "system:kube-controller-manager", "system:kube-proxy", "system:cloud-controller-manager":
			return Allow, ""
		}
		return NoOpinion, ""
	})
}

// Discovery allows every authenticated user to ask what the server is and
// serves, and everybody whether it is healthy.
func Discovery() Authorizer {
	return Func(func(_ context.Context, user *request.User, info *request.Info) (Decision, string) {
		if info.IsResource || info.Verb != "get" && info.Verb != "head" {
			return NoOpinion, ""
		}
		switch first(info.Path) {
		case "version", "healthz", "livez", "readyz":
			return Allow, ""
		case "api", "apis", "openapi", ".well-known", "openid":
			if user.In(authn.Authenticated) {
				return Allow, ""
			}
		}
		return NoOpinion, ""
	})
}

func first(path string) string {
	segment, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return segment
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
