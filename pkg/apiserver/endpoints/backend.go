package endpoints

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
	"podium/pkg/storage/watchcache"
)

// The API is a registry.Backend: what the kinds' own code asks of the server.

func (a *API) backed(gvr schema.GroupVersionResource) (*resource, error) {
	r := a.resources[gvr]
	if r == nil || r.cache == nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("%v is not stored", gvr))
	}
	return r, nil
}

// Get is a consistent read. The object is the caller's.
func (a *API) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, err
	}
	snap, err := r.snapshot(ctx, "")
	if err != nil {
		return nil, err
	}
	e := snap.Get(r.key(namespace, name))
	if e == nil {
		return nil, r.notFound(name)
	}
	return e.Object().DeepCopyObject().(scheme.Object), nil
}

// Recent is an object as the cache has it, which may be a moment behind; nil
// if it has none. The object is shared and must not be modified.
func (a *API) Recent(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) scheme.Object {
	r, err := a.backed(gvr)
	if err != nil {
		return nil
	}
	snap, err := r.cache.AtLeast(ctx, 0)
	if err != nil {
		return nil
	}
	e := snap.Get(r.key(namespace, name))
	if e == nil {
		return nil
	}
	return e.Object()
}

// List is a consistent read of a namespace, or of all. The objects are shared
// and must not be modified.
func (a *API) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, err
	}
	snap, err := r.snapshot(ctx, "")
	if err != nil {
		return nil, err
	}
	var out []scheme.Object
	snap.Ascend(r.scope(namespace), "", func(e *watchcache.Entry) bool {
		out = append(out, e.Object())
		return true
	})
	return out, nil
}

// Create stores a new object as a client's create would.
func (a *API) Create(ctx context.Context, gvr schema.GroupVersionResource, obj scheme.Object) (scheme.Object, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, err
	}
	obj = obj.DeepCopyObject().(scheme.Object)
	if r.Default != nil {
		r.Default(obj)
	}
	s, err := r.create(ctx, obj.GetNamespace(), obj, writeOptions{})
	if err != nil {
		return nil, err
	}
	return s.obj, nil
}

// Update applies change to the present state until it is stored.
func (a *API) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, change func(scheme.Object) error) (scheme.Object, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, err
	}
	s, err := r.mutate(ctx, r.key(namespace, name), name, false, func(cur *present) (plan, error) {
		next := cur.obj.DeepCopyObject().(scheme.Object)
		return plan{next: next}, change(next)
	})
	if err != nil {
		return nil, err
	}
	return s.obj, nil
}

// Delete removes an object as a client's delete would.
func (a *API) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts *metav1.DeleteOptions) error {
	r, err := a.backed(gvr)
	if err != nil {
		return err
	}
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	_, _, err = r.delete(ctx, namespace, name, opts)
	return err
}
