package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/controller/loop"
	"podium/pkg/scheme"
)

// Writer writes objects of kind T for the keys of one loop. After a write, the key is not
// reconciled again until the informer shows the write.
//
// A write to an object that no longer exists, or that another object of the same name has
// replaced, is not an error: it returns the zero T and nil. A resourceVersion conflict is
// an error. All methods are safe for concurrent use.
type Writer[T scheme.Object] struct {
	objects  client.Resource[T]
	informer *informer.Informer[T]
	loop     *loop.Loop
	resource string
}

// NewWriter returns a writer of the informer's objects.
func NewWriter[T scheme.Object](c Context, l *loop.Loop, i *informer.Informer[T]) Writer[T] {
	return Writer[T]{objects: client.For[T](c.Client), informer: i, loop: l, resource: scheme.KindOf[T](c.Client.Scheme()).Resource}
}

// Create stores a new object. It returns every error unchanged.
func (w Writer[T]) Create(ctx context.Context, key loop.Key, obj T) (T, error) {
	got, err := w.objects.Create(ctx, obj)
	if err == nil {
		w.Wrote(key, got)
	}
	return got, err
}

// Get reads an object from the API, not from the informer.
func (w Writer[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return w.objects.In(namespace).Get(ctx, name)
}

// Update replaces an object, or only the part that subresource covers.
func (w Writer[T]) Update(ctx context.Context, key loop.Key, obj T, subresource ...string) (T, error) {
	update := w.objects.Update
	if len(subresource) > 0 {
		update = func(ctx context.Context, obj T) (T, error) { return w.objects.UpdatePart(ctx, obj, subresource[0]) }
	}
	got, err := update(ctx, obj)
	return w.done(key, "update", obj.GetName(), subresource, got, err)
}

// UpdateStatus replaces the status of an object.
func (w Writer[T]) UpdateStatus(ctx context.Context, key loop.Key, obj T) (T, error) {
	return w.Update(ctx, key, obj, "status")
}

// Patch patches obj, or a subresource of it. It adds obj's UID to the patch. A patch with
// metadata.resourceVersion fails if the object has changed.
func (w Writer[T]) Patch(ctx context.Context, key loop.Key, obj T, pt types.PatchType, patch map[string]any, subresource ...string) (T, error) {
	var none T
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"] = obj.GetUID()
	patch["metadata"] = meta
	data, err := json.Marshal(patch)
	if err != nil {
		return none, err
	}
	got, err := w.objects.In(obj.GetNamespace()).Patch(ctx, obj.GetName(), pt, data, subresource...)
	if _, pinned := meta["resourceVersion"]; apierrors.IsConflict(err) && !pinned {
		return none, nil // the object has another UID
	}
	return w.done(key, "patch", obj.GetName(), subresource, got, err)
}

// Delete deletes obj unless another object of the same name has replaced it. It reports
// whether it deleted obj. The key is not reconciled again until the informer shows the
// deletion. With opts.Preconditions.ResourceVersion it fails if the object has changed.
func (w Writer[T]) Delete(ctx context.Context, key loop.Key, obj T, opts metav1.DeleteOptions) (bool, error) {
	uid := obj.GetUID()
	pre := metav1.Preconditions{UID: &uid}
	if opts.Preconditions != nil {
		pre.ResourceVersion = opts.Preconditions.ResourceVersion
	}
	opts.Preconditions = &pre
	err := w.objects.In(obj.GetNamespace()).Delete(ctx, obj.GetName(), opts)
	replaced := apierrors.IsConflict(err) && pre.ResourceVersion == nil
	if err != nil && !replaced && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("delete %s %s: %w", w.resource, obj.GetName(), err)
	}
	w.loop.Wait(key, func() bool {
		now, ok := w.informer.Get(obj.GetNamespace(), obj.GetName())
		return !ok || now.GetUID() != uid || now.GetDeletionTimestamp() != nil
	})
	return err == nil, nil
}

// Unchanged returns options that delete obj only if it has not changed.
func Unchanged(obj metav1.Object) metav1.DeleteOptions {
	revision := obj.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &revision}}
}

// Wrote delays the next reconcile of the key until the informer shows obj, which the caller
// wrote or read from the API.
func (w Writer[T]) Wrote(key loop.Key, obj T) {
	w.loop.Wrote(key, w.informer, obj.GetResourceVersion())
}

// Exists delays the next reconcile of the key until the informer shows an object of that
// name: the API says that it exists.
func (w Writer[T]) Exists(key loop.Key, namespace, name string) {
	w.loop.Wait(key, func() bool {
		_, ok := w.informer.Get(namespace, name)
		return ok
	})
}

func (w Writer[T]) done(key loop.Key, verb, name string, subresource []string, got T, err error) (T, error) {
	var none T
	switch {
	case err == nil:
		w.Wrote(key, got)
		return got, nil
	case apierrors.IsNotFound(err):
		return none, nil
	}
	return none, fmt.Errorf("%s %s %s: %w", verb, strings.Join(append([]string{w.resource}, subresource...), "/"), name, err)
}

// NamespaceTerminating reports whether err means that the namespace is terminating, so that
// nothing can be created in it.
func NamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
