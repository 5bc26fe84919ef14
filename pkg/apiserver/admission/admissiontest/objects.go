// Package admissiontest provides a fake for tests of admission plugins.
package admissiontest

import (
	"context"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
)

// Objects is an in-memory admission.Objects, by "resource/name". Its cache is
// empty: Recent returns nil.
type Objects map[string]scheme.Object

// Get returns a copy of an object.
func (o Objects) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	if obj := o[gvr.Resource+"/"+name]; obj != nil && obj.GetNamespace() == namespace {
		return obj.DeepCopyObject().(scheme.Object), nil
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

// Recent returns nil.
func (o Objects) Recent(context.Context, schema.GroupVersionResource, string, string) scheme.Object {
	return nil
}

// RecentList is List.
func (o Objects) RecentList(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error) {
	return o.List(ctx, gvr, namespace)
}

// Update stores what change makes of a copy of the object.
func (o Objects) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, change func(scheme.Object) error) (scheme.Object, error) {
	obj, err := o.Get(ctx, gvr, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := change(obj); err != nil {
		return nil, err
	}
	o[gvr.Resource+"/"+name] = obj
	return obj, nil
}

// List returns the objects of a namespace, in the order of their names.
func (o Objects) List(_ context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error) {
	var out []scheme.Object
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if obj := o[key]; strings.HasPrefix(key, gvr.Resource+"/") && (namespace == "" || obj.GetNamespace() == namespace) {
			out = append(out, obj)
		}
	}
	return out, nil
}

// Watched returns all objects of a resource and a version that was never seen.
func (o Objects) Watched(ctx context.Context, gvr schema.GroupVersionResource, _ any) ([]scheme.Object, any, error) {
	all, err := o.List(ctx, gvr, "")
	return all, new(int), err
}

// ResourceOf returns nil.
func (o Objects) ResourceOf(schema.GroupVersionKind) *scheme.Kind { return nil }
