package informer

import (
	"cmp"
	"slices"
	"sync"

	"podium/pkg/scheme"
)

type key struct{ namespace, name string }

func keyOf(obj scheme.Object) key { return key{obj.GetNamespace(), obj.GetName()} }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.name, o.name))
}

// entry is one object in the store, shared by all buckets that contain it.
type entry[T scheme.Object] struct {
	key    key
	obj    T
	values [][]string // of each index, computed when obj was stored
}

// bucket is a set of entries, listed in key order. The order is computed on demand and
// kept until an entry is added or removed.
type bucket[T scheme.Object] struct {
	entries map[key]*entry[T]
	sorted  []*entry[T]
}

func (b *bucket[T]) add(e *entry[T]) {
	if b.entries == nil {
		b.entries = map[key]*entry[T]{}
	}
	b.entries[e.key] = e
	b.sorted = nil
}

func (b *bucket[T]) remove(k key) {
	delete(b.entries, k)
	b.sorted = nil
}

func (b *bucket[T]) order() {
	b.sorted = make([]*entry[T], 0, len(b.entries))
	for _, e := range b.entries {
		b.sorted = append(b.sorted, e)
	}
	slices.SortFunc(b.sorted, func(x, y *entry[T]) int { return x.key.compare(y.key) })
}

// index finds entries by the values that a function returns for them.
type index[T scheme.Object] struct {
	name   string
	values func(T) []string
	by     map[string]*bucket[T]
}

func (x *index[T]) add(value string, e *entry[T]) {
	b := x.by[value]
	if b == nil {
		b = &bucket[T]{}
		x.by[value] = b
	}
	b.add(e)
}

func (x *index[T]) remove(value string, k key) {
	b := x.by[value]
	if b == nil {
		return
	}
	b.remove(k)
	if len(b.entries) == 0 {
		delete(x.by, value)
	}
}

// store is the indexed copy. indexes[0] is by namespace. It is safe for concurrent use.
type store[T scheme.Object] struct {
	mu       sync.RWMutex
	all      bucket[T]
	indexes  []*index[T]
	revision string
}

func newStore[T scheme.Object]() *store[T] {
	s := &store[T]{}
	s.index("", func(obj T) []string { return []string{obj.GetNamespace()} })
	return s
}

func (s *store[T]) index(name string, values func(T) []string) {
	if slices.ContainsFunc(s.indexes, func(x *index[T]) bool { return x.name == name }) {
		return
	}
	s.indexes = append(s.indexes, &index[T]{name: name, values: values, by: map[string]*bucket[T]{}})
}

func (s *store[T]) get(k key) (T, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.all.entries[k]
	if !ok {
		var none T
		return none, false
	}
	return e.obj, true
}

// put stores obj and returns the object that it replaced.
func (s *store[T]) put(obj T) (old T, existed bool) {
	k := keyOf(obj)
	values := make([][]string, len(s.indexes))
	for i, x := range s.indexes {
		values[i] = x.values(obj)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all.entries[k]
	if e == nil {
		e = &entry[T]{key: k, obj: obj, values: values}
		s.all.add(e)
		for i, x := range s.indexes {
			for _, v := range values[i] {
				x.add(v, e)
			}
		}
		return old, false
	}
	old, e.obj = e.obj, obj
	for i, x := range s.indexes {
		if slices.Equal(e.values[i], values[i]) {
			continue
		}
		for _, v := range e.values[i] {
			x.remove(v, k)
		}
		for _, v := range values[i] {
			x.add(v, e)
		}
	}
	e.values = values
	return old, true
}

func (s *store[T]) delete(k key) (old T, existed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all.entries[k]
	if e == nil {
		return old, false
	}
	s.all.remove(k)
	for i, x := range s.indexes {
		for _, v := range e.values[i] {
			x.remove(v, k)
		}
	}
	return e.obj, true
}

func (s *store[T]) keys() []key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]key, 0, len(s.all.entries))
	for k := range s.all.entries {
		out = append(out, k)
	}
	slices.SortFunc(out, key.compare)
	return out
}

// list returns a bucket's objects in key order. It calls find with the lock held.
func (s *store[T]) list(find func() *bucket[T]) []T {
	s.mu.RLock()
	if b := find(); b == nil || len(b.entries) == 0 {
		s.mu.RUnlock()
		return nil
	} else if b.sorted != nil {
		defer s.mu.RUnlock()
		return objects(b)
	}
	s.mu.RUnlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	b := find() // the bucket may have been replaced or removed
	if b == nil || len(b.entries) == 0 {
		return nil
	}
	if b.sorted == nil {
		b.order()
	}
	return objects(b)
}

func objects[T scheme.Object](b *bucket[T]) []T {
	out := make([]T, len(b.sorted))
	for i, e := range b.sorted {
		out[i] = e.obj
	}
	return out
}

func (s *store[T]) count(namespace string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if b := s.indexes[0].by[namespace]; b != nil {
		return len(b.entries)
	}
	return 0
}

func (s *store[T]) find(name string) *index[T] {
	for _, x := range s.indexes {
		if x.name == name {
			return x
		}
	}
	panic("informer: no index " + name) // a programming error
}

func (s *store[T]) setRevision(rv string) {
	if rv == "" {
		return
	}
	s.mu.Lock()
	s.revision = rv
	s.mu.Unlock()
}

func (s *store[T]) getRevision() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// inOrder returns the objects of a map in key order.
func inOrder[T scheme.Object](items map[key]T) []T {
	keys := make([]key, 0, len(items))
	for k := range items {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, key.compare)
	out := make([]T, len(keys))
	for i, k := range keys {
		out[i] = items[k]
	}
	return out
}
