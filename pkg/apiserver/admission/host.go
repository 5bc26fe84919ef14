package admission

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/authz"
	"podium/pkg/scheme"
)

// Host is the API server as plugins see it.
type Host struct {
	Objects     Objects
	Authorizer  authz.Authorizer
	Metrics     prometheus.Registerer // nil: no metrics
	Series      *Series               // shared by plugins; set by the list of plugins
	Now         func() time.Time
	ServiceCIDR netip.Prefix // of cluster IPs
	Address     netip.Addr   // at which other machines reach this server; the zero value: unknown
}

// Objects reads the cluster's objects. Errors are *apierrors.StatusError.
type Objects interface {
	// Get reads the store. The caller owns the object.
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error)
	// Recent returns the object from the watch cache, which may be stale, nil
	// if it is not there. The object is shared: callers must not modify it.
	Recent(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) scheme.Object
	// RecentList returns the objects of a namespace from the watch cache, which may be
	// stale. The objects are shared: callers must not modify them.
	RecentList(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error)
	// Update applies change to a copy of the present state and stores the result. After
	// a conflict, or an error of change from stale state, it repeats this with newer
	// state. No plugin is asked.
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, change func(scheme.Object) error) (scheme.Object, error)
	// List reads a namespace consistently, or all namespaces with "". The
	// objects are shared: callers must not modify them.
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error)
	// Watched returns the objects of a resource in the watch cache, and the version
	// of the cache's contents. If that is seen, it returns no objects. The objects
	// are shared: callers must not modify them.
	Watched(ctx context.Context, gvr schema.GroupVersionResource, seen any) (objects []scheme.Object, version any, err error)
	// ResourceOf returns the served resource of a kind, nil if there is none.
	ResourceOf(schema.GroupVersionKind) *scheme.Kind
}

// Derived is a value that is computed from all objects of a resource, and computed
// again when one of them changes. It is safe for concurrent use.
type Derived[V any] struct {
	objects Objects
	gvr     schema.GroupVersionResource
	compute func([]scheme.Object) V
	present atomic.Pointer[derived[V]]
	mu      sync.Mutex // held while the value is computed
}

type derived[V any] struct {
	version any
	value   V
}

// Derive returns a value that compute makes of the objects of a resource.
func Derive[V any](o Objects, gvr schema.GroupVersionResource, compute func([]scheme.Object) V) *Derived[V] {
	return &Derived[V]{objects: o, gvr: gvr, compute: compute}
}

// Get returns the present value. It does not contact the store.
func (d *Derived[V]) Get(ctx context.Context) (V, error) {
	if seen := d.present.Load(); seen != nil {
		if _, version, err := d.objects.Watched(ctx, d.gvr, seen.version); err == nil && version == seen.version {
			return seen.value, nil
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := d.present.Load()
	if seen == nil {
		seen = &derived[V]{}
	}
	objects, version, err := d.objects.Watched(ctx, d.gvr, seen.version)
	if err != nil || version == seen.version {
		return seen.value, err
	}
	now := &derived[V]{version, d.compute(objects)}
	d.present.Store(now)
	return now.value, nil
}

// Cached returns an object from the watch cache, or reads it from the store if
// the cache does not have it. Callers must not modify it.
func Cached(ctx context.Context, o Objects, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	if obj := o.Recent(ctx, gvr, namespace, name); obj != nil {
		return obj, nil
	}
	return o.Get(ctx, gvr, namespace, name)
}

// Namespace returns a namespace, nil without an error if it does not exist. It
// may be stale. Callers must not modify it.
func Namespace(ctx context.Context, o Objects, name string) (*corev1.Namespace, error) {
	obj, err := Cached(ctx, o, corev1.SchemeGroupVersion.WithResource("namespaces"), "", name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return obj.(*corev1.Namespace), nil
}
