package informer

import (
	"context"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// Source lists and watches the objects. client.Resource is one.
type Source[T scheme.Object] interface {
	List(context.Context, metav1.ListOptions) (*client.List[T], error)
	Watch(context.Context, metav1.ListOptions) (*client.Watch[T], error)
}

// Options restrict what an informer holds. The zero value holds everything.
type Options struct {
	FieldSelector string
	LabelSelector string
	// Log receives broken connections; nil discards them.
	Log *slog.Logger
	// Transform may strip an object (managed fields, unused data) before it is
	// stored. It must keep the metadata that identify the object.
	Transform func(obj scheme.Object)
	// Jitter returns numbers in [0,1) to spread reconnections; nil is random.
	Jitter func() float64
}

// Informer is the local copy. Its objects are shared: never modify one, DeepCopy it
// first. All methods are safe for concurrent use; before the first list, reads return
// nothing.
type Informer[T scheme.Object] struct {
	src   Source[T]
	opts  Options
	log   *slog.Logger
	store *store[T]

	changing sync.Mutex // held while one change is stored and passed to the handlers
	handlers []func(old, new T)

	synced   chan struct{}
	setSyncd sync.Once
}

// New returns an informer. It does nothing until Run.
func New[T scheme.Object](src Source[T], opts Options) *Informer[T] {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Informer[T]{src: src, opts: opts, log: log, store: newStore[T](), synced: make(chan struct{})}
}

// Index adds an index: By(name, value) then returns the objects for which f returns
// value. An existing index of that name is kept. Call it before Run.
func (i *Informer[T]) Index(name string, f func(T) []string) { i.store.index(name, f) }

// OnChange registers f to be called for each change, after the store contains it: old
// is zero when an object is added, new when it is deleted. Calls come one at a time,
// in the order of the changes. f must not call OnChange and must not block for long,
// because the informer waits for it. An f registered while the informer runs is first
// called for the objects in the store.
func (i *Informer[T]) OnChange(f func(old, new T)) {
	i.changing.Lock()
	defer i.changing.Unlock()
	var none T
	for _, obj := range i.List() {
		f(none, obj)
	}
	i.handlers = append(i.handlers, f)
}

// OnAnyChange is OnChange for handlers that are independent of the kind: an absent
// object is nil.
func (i *Informer[T]) OnAnyChange(f func(old, new metav1.Object)) {
	var none T
	object := func(obj T) metav1.Object {
		if any(obj) == any(none) {
			return nil
		}
		return obj
	}
	i.OnChange(func(old, new T) { f(object(old), object(new)) })
}

// Synced reports whether the first list is in the store and all handlers have seen it.
func (i *Informer[T]) Synced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// WaitSynced blocks until Synced reports true, or returns the error of ctx.
func (i *Informer[T]) WaitSynced(ctx context.Context) error {
	select {
	case <-i.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Get returns an object, false if it does not exist. The namespace of a cluster-scoped
// object is "".
func (i *Informer[T]) Get(namespace, name string) (T, bool) {
	return i.store.get(key{namespace, name})
}

// List returns all objects, ordered by namespace and name.
func (i *Informer[T]) List() []T {
	return i.store.list(func() *bucket[T] { return &i.store.all })
}

// In returns a namespace's objects, ordered by name.
func (i *Informer[T]) In(namespace string) []T {
	return i.store.list(func() *bucket[T] { return i.store.indexes[0].by[namespace] })
}

// By returns the objects for which the index has the value, ordered by namespace and name.
func (i *Informer[T]) By(index, value string) []T {
	x := i.store.find(index)
	return i.store.list(func() *bucket[T] { return x.by[value] })
}

// Count returns len(In(namespace)) without building the list.
func (i *Informer[T]) Count(namespace string) int { return i.store.count(namespace) }

// Revision returns the last resourceVersion seen in a list, an event or a bookmark.
func (i *Informer[T]) Revision() string { return i.store.getRevision() }

// set stores one object and calls the handlers, unless nothing changed. An object that
// replaces another one of the same name is reported as a deletion and an addition.
func (i *Informer[T]) set(obj T) {
	if i.opts.Transform != nil {
		i.opts.Transform(obj)
	}
	i.changing.Lock()
	defer i.changing.Unlock()
	old, existed := i.store.get(keyOf(obj))
	if existed && old.GetUID() == obj.GetUID() && old.GetResourceVersion() == obj.GetResourceVersion() {
		return
	}
	if existed && old.GetUID() != obj.GetUID() {
		i.dropLocked(keyOf(obj))
	}
	old, _ = i.store.put(obj)
	for _, f := range i.handlers {
		f(old, obj)
	}
}

func (i *Informer[T]) drop(k key) {
	i.changing.Lock()
	defer i.changing.Unlock()
	i.dropLocked(k)
}

func (i *Informer[T]) dropLocked(k key) {
	old, existed := i.store.delete(k)
	if !existed {
		return
	}
	var none T
	for _, f := range i.handlers {
		f(old, none)
	}
}

// replace makes the store hold exactly items: it deletes missing objects, updates
// changed ones and adds new ones. Handlers are not called for unchanged objects.
func (i *Informer[T]) replace(items []T, revision string) {
	wanted := make(map[key]bool, len(items))
	for _, obj := range items {
		wanted[keyOf(obj)] = true
	}
	for _, k := range i.store.keys() {
		if !wanted[k] {
			i.drop(k)
		}
	}
	for _, obj := range items {
		i.set(obj)
	}
	i.store.setRevision(revision)
	i.setSyncd.Do(func() { close(i.synced) })
}
