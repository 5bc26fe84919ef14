package registry

import (
	"context"
	"fmt"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// The messages of a policy may contain values of its parameters. A user who writes a
// policy must therefore be allowed to read all objects of its paramKind, and a user
// who writes a binding the objects that it refers to.

// paramReaders checks these permissions.
type paramReaders struct {
	scheme *scheme.Scheme
	access Access // nil: only the server itself and system:masters
}

// mayGet reports whether the user of ctx has a verb for objects of a kind. name
// and namespace may be "*".
func (p *paramReaders) mayGet(ctx context.Context, verb string, k *registration.ParamKind, namespace, name string) bool {
	if unlimited(ctx) {
		return true
	}
	info := &request.Info{IsResource: true, Verb: verb, Group: "*", Version: "*", Resource: "*", Namespace: namespace, Name: name}
	if gv, err := schema.ParseGroupVersion(k.APIVersion); err == nil {
		info.Group, info.Version = gv.Group, gv.Version
		if kind := p.scheme.ByKind(gv.WithKind(k.Kind)); kind != nil {
			info.Resource = kind.Resource
		}
	}
	if p.access == nil {
		return false
	}
	d, _ := p.access.Authorize(ctx, request.UserFrom(ctx), info)
	return d == authz.Allow
}

// policy returns a 422 unless the user of ctx may read all objects of the kind,
// which may be nil.
func (p *paramReaders) policy(ctx context.Context, of *scheme.Kind, name string, k *registration.ParamKind) error {
	if k == nil || p.mayGet(ctx, "get", k, "*", "*") {
		return nil
	}
	return forbiddenParams(of, name, "paramKind", `user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`,
		request.UserFrom(ctx).Name, k.Kind, k.APIVersion)
}

// binding returns a 422 unless the user of ctx may read the objects that a
// binding refers to. kind is the policy's; nil: the policy has none, or it does
// not exist, so that all kinds count.
func (p *paramReaders) binding(ctx context.Context, of *scheme.Kind, name string, r *registration.ParamRef, k *registration.ParamKind) error {
	if r == nil {
		return nil
	}
	verb, object, namespace := "get", r.Name, r.Namespace
	if object == "" {
		verb, object = "list", "*"
	}
	if namespace == "" {
		namespace = "*"
	}
	if k == nil {
		k = &registration.ParamKind{APIVersion: "*/*", Kind: "*"}
	}
	if p.mayGet(ctx, verb, k, namespace, object) {
		return nil
	}
	return forbiddenParams(of, name, "paramRef", `user %v does not have %q permission on the object referenced by paramRef`, request.UserFrom(ctx).Name, verb)
}

func forbiddenParams(of *scheme.Kind, name, fieldName, format string, args ...any) error {
	at := field.NewPath("spec", fieldName)
	return apierrors.NewInvalid(of.GroupKind(), name, field.ErrorList{field.Forbidden(at, fmt.Sprintf(format, args...))})
}
