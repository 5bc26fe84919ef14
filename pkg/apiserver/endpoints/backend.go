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

// API implements registry.Backend, through which the code of a kind uses the server.

// backed returns the storage of a resource for the methods of registry.Backend, or
// an internal error if the resource is not served or not stored.
func (a *API) backed(gvr schema.GroupVersionResource) (*version, error) {
	r := a.resource(gvr)
	for _, stored := range a.table.Load().resources {
		if r == nil && stored.GVR() == gvr {
			r = stored.versions[0] // a storage version that is not served
		}
	}
	if r == nil || r.cache == nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("%v is not stored", gvr))
	}
	return r, nil
}

// Get is a consistent read: it waits until the cache has caught up with the store.
// The caller owns the returned object.
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
	if e, err = r.seenOne(ctx, e); err != nil {
		return nil, err
	}
	return e.Object().DeepCopyObject().(scheme.Object), nil
}

// Recent returns an object from the cache without contacting the store, so that it
// may be stale. It returns nil if the cache does not have the object or cannot be
// read. The object is shared and must not be modified.
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
	if e, err = r.seenOne(ctx, e); err != nil {
		return nil
	}
	return e.Object()
}

// RecentList returns the objects of a namespace from the cache without contacting the
// store, so that they may be stale. They are shared and must not be modified.
func (a *API) RecentList(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, err
	}
	snap, err := r.cache.AtLeast(ctx, 0)
	if err != nil {
		return nil, err
	}
	return r.within(ctx, snap, namespace)
}

// List is a consistent read of a namespace, or of all namespaces if namespace is
// "". The objects are shared and must not be modified.
func (a *API) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, err
	}
	snap, err := r.snapshot(ctx, "")
	if err != nil {
		return nil, err
	}
	return r.within(ctx, snap, namespace)
}

// Stored is List, but of a kind with a Converter it returns the objects in the versions
// in which they are stored, with type metadata.
func (a *API) Stored(ctx context.Context, gvr schema.GroupVersionResource) ([]scheme.Object, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, err
	}
	snap, err := r.snapshot(ctx, "")
	if err != nil {
		return nil, err
	}
	return r.asStored().within(ctx, snap, "")
}

// within returns the objects of a namespace, or all objects if namespace is "".
func (r *resource) within(ctx context.Context, snap *watchcache.Snapshot, namespace string) ([]scheme.Object, error) {
	var entries []*watchcache.Entry
	snap.Ascend(r.scope(namespace), "", func(e *watchcache.Entry) bool {
		entries = append(entries, e)
		return true
	})
	entries, err := r.seen(ctx, entries)
	if err != nil {
		return nil, err
	}
	out := make([]scheme.Object, len(entries))
	for i, e := range entries {
		out[i] = e.Object()
	}
	return out, nil
}

// Watched implements admission.Objects.
func (a *API) Watched(ctx context.Context, gvr schema.GroupVersionResource, seen any) ([]scheme.Object, any, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, nil, err
	}
	snap, err := r.cache.AtLeast(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	version := snap.Version()
	if version == seen {
		return nil, version, nil
	}
	out, err := r.within(ctx, snap, "")
	return out, version, err
}

// ResourceOf implements admission.Objects.
func (a *API) ResourceOf(gvk schema.GroupVersionKind) *scheme.Kind {
	for _, r := range a.table.Load().resources {
		for _, v := range r.Served() {
			if v.GroupVersionKind == gvk {
				return r.Kind.Kind
			}
		}
	}
	return nil
}

// Create stores a copy of obj, with defaults, admission and validation as for a
// client's create, and returns the stored object.
func (a *API) Create(ctx context.Context, gvr schema.GroupVersionResource, obj scheme.Object) (scheme.Object, error) {
	r, err := a.backed(gvr)
	if err != nil {
		return nil, err
	}
	obj = obj.DeepCopyObject().(scheme.Object)
	r.setDefaults(obj)
	s, err := r.create(ctx, obj.GetNamespace(), obj, writeOptions{manager: serverManager})
	if err != nil {
		return nil, err
	}
	return s.obj, nil
}

// Update calls change with a copy of the present state and stores the result. After
// a conflict it calls change again with the newer state. It applies neither
// admission nor validation.
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

// Delete deletes an object, with admission and finalizers as for a client's delete.
// nil opts are the defaults.
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

// DeleteAdmitted deletes an object with finalizers and without admission.
func (a *API) DeleteAdmitted(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts *metav1.DeleteOptions) error {
	r, err := a.backed(gvr)
	if err != nil {
		return err
	}
	_, _, err = r.remove(ctx, namespace, name, opts, nil)
	return err
}
