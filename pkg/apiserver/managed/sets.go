package managed

import (
	"bytes"
	"fmt"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// fieldSet is a set of fields as FieldsV1. It is immutable and safe for concurrent
// use; objects share its bytes.
type fieldSet struct {
	raw   []byte
	once  sync.Once
	set   *fieldpath.Set
	stale bool // the schema has changed: raw is not what set is
	err   error
}

// decode returns the set as the schema divides it today. The caller must not modify
// it.
func (f *fieldSet) decode(t *Type) (*fieldpath.Set, error) {
	f.once.Do(func() {
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(f.raw)); err != nil {
			f.err = fmt.Errorf("decode managed fields: %w", err)
			return
		}
		f.set = t.root.reconcile(set)
		f.stale = f.set != set
	})
	return f.set, f.err
}

// encodeSet returns a set that is not empty as a fieldSet.
func encodeSet(set *fieldpath.Set) (*fieldSet, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encode managed fields: %w", err)
	}
	f := &fieldSet{raw: raw, set: set}
	f.once.Do(func() {})
	return f, nil
}

// generation is the size, in bytes of FieldsV1, of each of the two generations of
// sets that a cache holds.
const generation = 64 << 10

// cache finds sets by their bytes. It holds those that were used last.
type cache struct {
	mu         sync.Mutex
	young, old map[string]*fieldSet
	size       int // of the young generation
}

// of returns the set with the given bytes, which it copies if it does not hold them.
func (c *cache) of(raw []byte) *fieldSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.young[string(raw)]; f != nil {
		return f
	}
	f := c.old[string(raw)]
	if f == nil {
		f = &fieldSet{raw: bytes.Clone(raw)}
	}
	c.addLocked(f)
	return f
}

// add makes the cache hold a set.
func (c *cache) add(f *fieldSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(f)
}

func (c *cache) addLocked(f *fieldSet) {
	if len(f.raw) > generation/4 {
		return
	}
	if c.size += len(f.raw); c.size > generation || c.young == nil {
		c.young, c.old, c.size = map[string]*fieldSet{}, c.young, len(f.raw)
	}
	c.young[string(f.raw)] = f
}

// reconcile returns the set for the present schema: where a list or an object has
// become atomic since the set was written, the fields in it become one.
func (s *shape) reconcile(set *fieldpath.Set) *fieldpath.Set {
	var whole fieldpath.Set
	s.atomics(set, nil, &whole)
	if whole.Empty() {
		return set
	}
	return set.RecursiveDifference(&whole).Union(&whole)
}

// atomics adds to whole the paths below path that are atomic, and of which set has
// parts.
func (s *shape) atomics(set *fieldpath.Set, path fieldpath.Path, whole *fieldpath.Set) {
	set.Children.Iterate(func(e fieldpath.PathElement) {
		below, _ := set.Children.Get(e)
		child := s.child(e)
		path := append(path[:len(path):len(path)], e)
		switch {
		case child == nil || child == deduced || child.object == nil && child.scalar:
		case child.object != nil && child.object.atomic, child.object == nil && child.list != nil && child.list.atomic:
			whole.Insert(path)
		default:
			child.atomics(below, path, whole)
		}
	})
}

// child returns the shape of a field or an item, nil if the type has none.
func (s *shape) child(e fieldpath.PathElement) *shape {
	switch {
	case e.FieldName != nil && s.object != nil:
		return s.object.known(*e.FieldName)
	case e.FieldName == nil && s.list != nil:
		return s.list.item
	}
	return nil
}
