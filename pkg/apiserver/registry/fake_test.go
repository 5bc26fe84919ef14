package registry_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/memory"
)

// backend is a registry.Backend in memory.
type backend struct {
	objects map[schema.GroupVersionResource][]scheme.Object
	deleted []string
}

func (b *backend) find(gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	for _, obj := range b.objects[gvr] {
		if obj.GetNamespace() == namespace && obj.GetName() == name {
			return obj, nil
		}
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

func (b *backend) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	obj, err := b.find(gvr, namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.DeepCopyObject().(scheme.Object), nil
}

func (b *backend) List(_ context.Context, gvr schema.GroupVersionResource, _ string) ([]scheme.Object, error) {
	return b.objects[gvr], nil
}

func (b *backend) Create(_ context.Context, gvr schema.GroupVersionResource, obj scheme.Object) (scheme.Object, error) {
	b.objects[gvr] = append(b.objects[gvr], obj)
	return obj, nil
}

func (b *backend) Update(_ context.Context, gvr schema.GroupVersionResource, namespace, name string, change func(scheme.Object) error) (scheme.Object, error) {
	obj, err := b.find(gvr, namespace, name)
	if err != nil {
		return nil, err
	}
	return obj, change(obj)
}

func (b *backend) Delete(_ context.Context, gvr schema.GroupVersionResource, namespace, name string, _ *metav1.DeleteOptions) error {
	_, err := b.find(gvr, namespace, name)
	b.deleted = append(b.deleted, name)
	return err
}

func (b *backend) DeleteAdmitted(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts *metav1.DeleteOptions) error {
	return b.Delete(ctx, gvr, namespace, name, opts)
}

// holding returns a backend with these objects, by their resource in the core
// group.
func holding(objects map[string][]scheme.Object) *backend {
	b := &backend{objects: map[schema.GroupVersionResource][]scheme.Object{}}
	for resource, list := range objects {
		b.objects[schema.GroupVersionResource{Version: "v1", Resource: resource}] = list
	}
	return b
}

var today = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rig has the kinds of a small cluster.
type rig struct {
	scheme *scheme.Scheme
	store  *memory.Store
	cfg    registry.Config
	kinds  map[string]*registry.Kind
}

func newRig(t testing.TB, cidr string, ports registry.PortRange) *rig {
	t.Helper()
	r := &rig{scheme: scheme.New(), store: memory.New(), kinds: map[string]*registry.Kind{}}
	r.cfg = registry.Config{
		Store: r.store, ServiceCIDR: netip.MustParsePrefix(cidr), NodePorts: ports,
		Now: func() time.Time { return today },
	}
	for _, k := range registry.Kinds(r.scheme, r.cfg) {
		r.kinds[k.Resource] = k
	}
	return r
}

// keys returns the keys in the store under a prefix, without the prefix.
func (r *rig) keys(t *testing.T, prefix string) []string {
	t.Helper()
	page, err := r.store.List(t.Context(), prefix, storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, kv := range page.KVs {
		out = append(out, kv.Key[len(prefix):])
	}
	slices.Sort(out)
	return out
}

func subresource(t *testing.T, k *registry.Kind, name string) *registry.Subresource {
	t.Helper()
	for _, s := range k.Subresources {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("%s has no %s", k.Resource, name)
	return nil
}

func texts(errs field.ErrorList) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}
