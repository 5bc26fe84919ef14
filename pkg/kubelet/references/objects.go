package references

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/client/ttlcache"
	"podium/pkg/scheme"
)

// remembered is how many objects of a kind the strategy Cache keeps at most: those of
// 110 pods with some volumes each.
const remembered = 1000

// objects reads the objects of one kind.
type objects[T scheme.Object] struct {
	resource schema.GroupResource
	source   client.Resource[T]
	watches  bool
	lifetime time.Duration
	recent   *ttlcache.Cache[types.NamespacedName, T]
	changed  func(pods []types.UID)
	log      *slog.Logger

	running sync.WaitGroup

	mu      sync.Mutex
	watched map[types.NamespacedName]*watched[T]
}

// watched is an object to which pods refer. The mutex of objects guards all but the
// informer.
type watched[T scheme.Object] struct {
	informer *informer.Informer[T]
	stop     context.CancelFunc
	pods     map[types.UID]bool
	read     string // the version that a pod read last; "" before and if there was none
}

func newObjects[T scheme.Object](cfg *Config, resource schema.GroupResource) *objects[T] {
	o := &objects[T]{
		resource: resource, source: client.For[T](cfg.Client), watches: cmp.Or(cfg.Strategy, Watch) == Watch, changed: cfg.Changed, log: cfg.Log,
		watched: map[types.NamespacedName]*watched[T]{}, recent: ttlcache.New[types.NamespacedName, T](remembered, time.Now),
	}
	if cfg.Strategy == Cache {
		o.lifetime = cfg.Lifetime
	}
	return o
}

func (o *objects[T]) follow(ctx context.Context, pod *corev1.Pod, names []string) {
	if !o.watches {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: name}
		if o.watched[key] == nil {
			o.watched[key] = o.watch(ctx, key)
		}
		o.watched[key].pods[pod.UID] = true
	}
}

func (o *objects[T]) watch(ctx context.Context, key types.NamespacedName) *watched[T] {
	ctx, stop := context.WithCancel(ctx)
	w := &watched[T]{stop: stop, pods: map[types.UID]bool{}}
	w.informer = informer.New(o.source.In(key.Namespace), informer.Options{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String(),
		Log:           o.log.With(o.resource.Resource, key.String()),
		Transform:     strip,
	})
	w.informer.OnAnyChange(func(_, now metav1.Object) { o.tell(w, now) })
	o.running.Go(func() { w.informer.Run(ctx) }) // returns nil when ctx ends
	return w
}

// strip removes what volumes do not show.
func strip(obj scheme.Object) { obj.SetManagedFields(nil) }

// tell reports a change of an object, unless it brings what its pods have read already.
// now is nil if the object has been deleted.
func (o *objects[T]) tell(w *watched[T], now metav1.Object) {
	version := ""
	if now != nil {
		version = now.GetResourceVersion()
	}
	o.mu.Lock()
	if version == w.read {
		o.mu.Unlock()
		return
	}
	pods := slices.Collect(maps.Keys(w.pods))
	o.mu.Unlock()
	o.changed(pods)
}

func (o *objects[T]) forget(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, w := range o.watched {
		delete(w.pods, uid)
		if len(w.pods) == 0 {
			w.stop()
			delete(o.watched, key)
		}
	}
}

// get returns the object as a watch has it, once that has begun to bring it; else as the
// API has it.
func (o *objects[T]) get(ctx context.Context, namespace, name string) (T, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	o.mu.Lock()
	w := o.watched[key]
	o.mu.Unlock()
	if w == nil {
		return o.getUnwatched(ctx, key)
	}
	obj, err := o.getWatched(ctx, w, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return obj, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	w.read = ""
	if err == nil {
		w.read = obj.GetResourceVersion()
	}
	return obj, err
}

func (o *objects[T]) getWatched(ctx context.Context, w *watched[T], key types.NamespacedName) (obj T, err error) {
	if !w.informer.Synced() {
		return o.source.In(key.Namespace).Get(ctx, key.Name)
	}
	obj, ok := w.informer.Get(key.Namespace, key.Name)
	if !ok {
		return obj, apierrors.NewNotFound(o.resource, key.Name)
	}
	return obj, nil
}

func (o *objects[T]) getUnwatched(ctx context.Context, key types.NamespacedName) (T, error) {
	if obj, ok := o.recent.Get(key); ok {
		return obj, nil
	}
	obj, err := o.source.In(key.Namespace).Get(ctx, key.Name)
	if err == nil {
		o.recent.Put(key, obj, o.lifetime)
	}
	return obj, err
}
