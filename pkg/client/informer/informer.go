package informer

import (
	"context"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// Source is where the objects come from. client.Resource is one.
type Source[T scheme.Object] interface {
	List(context.Context, metav1.ListOptions) (*client.List[T], error)
	Watch(context.Context, metav1.ListOptions) (*client.Watch[T], error)
}

// Options narrow what an informer holds. The zero value holds everything.
type Options struct {
	FieldSelector string
	LabelSelector string
	// Log hears of broken connections; nil is silence.
	Log *slog.Logger
	// Transform may strip an object (managed fields, data nobody reads) before
	// it is stored. It must keep the metadata that identify it.
	Transform func(obj scheme.Object)
	// Jitter gives numbers in [0,1) to spread reconnections; nil is random.
	Jitter func() float64
}

// Informer is the copy. Its objects are shared: never modify one, DeepCopy it
// first. Reads are safe at any time; before the first list they find nothing.
type Informer[T scheme.Object] struct {
	src      Source[T]
	opts     Options
	log      *slog.Logger
	store    *store[T]
	handlers []func(old, new T)

	synced   chan struct{}
	setSyncd sync.Once
}

// New makes an informer. It does nothing until Run.
func New[T scheme.Object](src Source[T], opts Options) *Informer[T] {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Informer[T]{src: src, opts: opts, log: log, store: newStore[T](), synced: make(chan struct{})}
}

// Index makes By(name, value) find the objects for which f gives that value.
// To be called before Run.
func (i *Informer[T]) Index(name string, f func(T) []string) { i.store.index(name, f) }

// OnChange has f called for each change, after the store shows it: old is zero
// when an object appears, new when it goes. Calls come one at a time, in the
// order of the changes; f must not block for long, the informer waits for it.
// To be called before Run.
func (i *Informer[T]) OnChange(f func(old, new T)) { i.handlers = append(i.handlers, f) }

// Synced holds once the first list is in the store and every handler has seen it.
func (i *Informer[T]) Synced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// WaitSynced blocks until Synced, or until ctx ends.
func (i *Informer[T]) WaitSynced(ctx context.Context) error {
	select {
	case <-i.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Get finds an object. The namespace of a cluster-scoped one is "".
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

// Count is len(In(namespace)), without listing them.
func (i *Informer[T]) Count(namespace string) int { return i.store.count(namespace) }

// Revision is the last resourceVersion seen, of a list, an event or a bookmark.
func (i *Informer[T]) Revision() string { return i.store.getRevision() }

// set stores one object and tells the handlers, unless nothing changed. An
// object that replaces another of its name is a deletion and an addition.
func (i *Informer[T]) set(obj T) {
	if i.opts.Transform != nil {
		i.opts.Transform(obj)
	}
	old, existed := i.store.get(keyOf(obj))
	if existed && old.GetUID() == obj.GetUID() && old.GetResourceVersion() == obj.GetResourceVersion() {
		return
	}
	if existed && old.GetUID() != obj.GetUID() {
		i.drop(keyOf(obj))
	}
	old, _ = i.store.put(obj)
	for _, f := range i.handlers {
		f(old, obj)
	}
}

func (i *Informer[T]) drop(k key) {
	old, existed := i.store.delete(k)
	if !existed {
		return
	}
	var none T
	for _, f := range i.handlers {
		f(old, none)
	}
}

// replace makes the store hold exactly items: what is missing goes, what
// differs changes, what is new comes; what is the same is not mentioned.
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
