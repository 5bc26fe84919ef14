package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
)

// A kindClient is client-go's client of a kind.
type kindClient[T, L any] interface {
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, o metav1.DeleteOptions, list metav1.ListOptions) error
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (T, error)
}

// crudOf says how the verbs of a kind are tried.
type crudOf[T interface {
	metav1.Object
	runtime.Object
}, L any] struct {
	client kindClient[T, L]
	all    interface { // the client of all namespaces; nil if the kind has none
		List(ctx context.Context, o metav1.ListOptions) (L, error)
	}
	labels map[string]string // select the objects that object returns
	object func(name string) T
	count  func(list L) int
}

// crud tries every verb: create, get, list, watch, update, patch, delete and
// deletecollection.
func crud[T interface {
	metav1.Object
	runtime.Object
}, L any](t *testing.T, ctx context.Context, of crudOf[T, L]) {
	t.Helper()
	var terms []string
	for key, value := range of.labels {
		terms = append(terms, key+"="+value)
	}
	ours := metav1.ListOptions{LabelSelector: strings.Join(terms, ",")}
	counts := func(want int) {
		t.Helper()
		list, err := of.client.List(ctx, ours)
		check(t, err)
		if got := of.count(list); got != want {
			t.Errorf("the list has %d objects, want %d", got, want)
		}
	}
	for _, name := range []string{"object-1", "object-2", "object-3"} {
		_, err := of.client.Create(ctx, of.object(name), metav1.CreateOptions{})
		check(t, err)
	}
	got, err := of.client.Get(ctx, "object-1", metav1.GetOptions{})
	check(t, err)
	if got.GetUID() == "" || got.GetName() != "object-1" {
		t.Errorf("get returned %s with the uid %q", got.GetName(), got.GetUID())
	}
	counts(3)
	if of.all != nil {
		list, err := of.all.List(ctx, ours)
		check(t, err)
		if n := of.count(list); n != 3 {
			t.Errorf("the list of all namespaces has %d objects", n)
		}
	}
	from := ours
	from.ResourceVersion = got.GetResourceVersion()
	w, err := of.client.Watch(ctx, from)
	check(t, err)
	defer w.Stop()

	_, err = of.client.Patch(ctx, "object-1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"patched":"true"}}}`), metav1.PatchOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(o T) bool { return o.GetAnnotations()["patched"] == "true" })
	var updated T
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() error { // with the kind's controller
		patched, err := of.client.Get(ctx, "object-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		annotations := patched.GetAnnotations()
		annotations["updated"] = "true"
		patched.SetAnnotations(annotations)
		updated, err = of.client.Update(ctx, patched, metav1.UpdateOptions{})
		return err
	}))
	if updated.GetAnnotations()["updated"] != "true" || updated.GetAnnotations()["patched"] != "true" {
		t.Errorf("after the update the annotations are %v", updated.GetAnnotations())
	}
	sees(t, ctx, w, watch.Modified, func(o T) bool { return o.GetAnnotations()["updated"] == "true" })
	check(t, of.client.Delete(ctx, "object-1", metav1.DeleteOptions{}))
	sees(t, ctx, w, watch.Deleted, func(o T) bool { return o.GetName() == "object-1" })
	_, err = of.client.Get(ctx, "object-1", metav1.GetOptions{})
	notFound(t, "the deleted object", err)
	counts(2)
	check(t, of.client.DeleteCollection(ctx, metav1.DeleteOptions{}, ours))
	counts(0)
}

// inDiscovery wants the resource in the discovery of its group and version.
func inDiscovery(t *testing.T, groupVersion, resource string) {
	t.Helper()
	list, err := admin.Discovery().ServerResourcesForGroupVersion(groupVersion)
	check(t, err)
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }) {
		t.Error(fmt.Errorf("%s has no %s", groupVersion, resource))
	}
}
