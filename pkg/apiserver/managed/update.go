package managed

import (
	"errors"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"podium/pkg/storage"
)

// Type is a version of a kind. It is safe for concurrent use.
type Type struct {
	root *shape
	sets cache
}

// Type returns the type of a kind, or nil if the documents do not describe it.
func (s Schemas) Type(gvk schema.GroupVersionKind) *Type {
	if root := s[gvk]; root != nil && root.object != nil {
		return &Type{root: root}
	}
	return nil
}

// Untracked are fields that have no managers.
type Untracked struct{ *skips }

// system are the metadata that only the server sets.
var system = []string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"}

// Without returns the fields that never have managers, and the given ones: top-level
// fields, or fields of the metadata such as "metadata.labels".
func Without(fields ...string) Untracked {
	u := &skips{names: map[string]bool{"apiVersion": true, "kind": true}, metadata: &skips{names: map[string]bool{}}}
	for _, name := range system {
		u.metadata.names[name] = true
	}
	for _, name := range fields {
		if inner, ok := strings.CutPrefix(name, "metadata."); ok {
			u.metadata.names[inner] = true
		} else {
			u.names[name] = true
		}
	}
	return Untracked{u}
}

// Pair is an object before and after a write, in one version: structs or maps, not
// pointers. For a create, Old is an empty object.
type Pair struct {
	Type     *Type // nil: the version does not exist
	Old, New reflect.Value
}

// Write is a create, an update or a patch; not an apply.
type Write struct {
	Manager     string // "": unknown
	APIVersion  string // of the request
	Subresource string
	Create      bool
	Time        metav1.Time
	Untracked   Untracked
	Pair        func(apiVersion string) (Pair, error) // the object in the version of the request, or of a manager
}

// Fields returns the managed fields of the new object. live and sent are those of the
// old object, and those of the new one as the client sent them. Neither is modified;
// the result may share memory with both. If the write changes nothing, the result is
// live. The error is
// ErrTooLarge, or a 413 if the client sent too many managed fields.
func (w *Write) Fields(live, sent []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	p, err := w.Pair(w.APIVersion)
	if err != nil {
		return nil, err
	}
	base, same, err := w.base(p.Type, live, sent)
	if err != nil {
		return nil, err
	}
	if len(base) == 0 && !w.Create {
		return nil, nil // as upstream: tracking begins with the creation or the first apply
	}
	d, err := w.compare(p)
	if err != nil {
		return nil, err
	}
	if same && d.changed == nil && d.removed == nil {
		return live, nil
	}
	out, err := w.take(base, d)
	if err != nil {
		return nil, err
	}
	if out, err = w.add(out, d); err != nil {
		return nil, err
	}
	if out, err = out.limit(p.Type); err != nil {
		return nil, err
	}
	return out.encode(), nil
}

// base returns the managers that the write starts from. As upstream, these are those
// that the client sent to the object itself, if they can be decoded, else those of the
// old object. same reports whether they are equal to the latter.
func (w *Write) base(t *Type, live, sent []metav1.ManagedFieldsEntry) (base managers, same bool, err error) {
	if w.Subresource != "" || sent == nil || equalEntries(live, sent) {
		return t.managers(live), true, nil
	}
	if reset(sent) {
		return nil, len(live) == 0, nil
	}
	base, err = t.decode(sent)
	if err != nil {
		return nil, false, err
	}
	if len(base) == 0 {
		return t.managers(live), true, nil
	}
	return base, false, nil
}

// reset reports whether a client asks for the removal of all managers.
func reset(sent []metav1.ManagedFieldsEntry) bool {
	return len(sent) == 0 || len(sent) == 1 && sent[0] == metav1.ManagedFieldsEntry{}
}

// difference is what a write changes in one version.
type difference struct {
	*Type
	changed *fieldSet // fields that it adds, or sets to another value; nil: none
	removed *fieldSet
}

// ErrTooLarge is returned for an object with so many fields that it does not fit the
// store together with its managed fields.
var ErrTooLarge = errors.New("too many fields to be managed")

func (w *Write) compare(p Pair) (*difference, error) {
	k := walkers.Get().(*walker)
	defer walkers.Put(k)
	k.changed.reset()
	k.removed.reset()
	k.path, k.arena = k.path[:0], k.arena[:0]
	k.fields(p.Type.root.object, p.Old, p.New, w.Untracked.skips)
	changed, removed := k.changed.fields(), k.removed.fields()
	if len(changed) > storage.MaxValue {
		k.changed.buf = nil
		return nil, ErrTooLarge
	}
	d := &difference{Type: p.Type}
	if changed != nil {
		d.changed = p.Type.sets.of(changed)
	}
	if removed != nil {
		d.removed = p.Type.sets.of(removed)
	}
	return d, nil
}

// take returns the managers without the fields that the write removes and those that
// it takes over. Managers without fields, and those of versions that no longer exist,
// are left out.
func (w *Write) take(base managers, d *difference) (out managers, err error) {
	versions := map[string]*difference{}
	for _, m := range base {
		in := versions[m.APIVersion]
		if m.APIVersion == w.APIVersion {
			in = d
		}
		if in == nil {
			p, err := w.Pair(m.APIVersion)
			if err != nil {
				return nil, err
			}
			if p.Type == nil {
				continue
			}
			if in, err = w.compare(p); err != nil {
				return nil, err
			}
			versions[m.APIVersion] = in
		}
		if in != d {
			m.fields = in.sets.of(m.fields.raw) // decoded by the schema of its version
		}
		lost := []*fieldSet{in.removed, in.changed}
		if m.id() == w.id() {
			lost = lost[:1]
		}
		if m.fields, err = in.without(m.fields, lost...); err != nil {
			return nil, err
		}
		if m.fields != nil {
			out = append(out, m)
		}
	}
	return out, nil
}

// without returns the fields of a set that are in none of the others, nil if there are
// none. The others may be nil.
func (t *Type) without(f *fieldSet, others ...*fieldSet) (*fieldSet, error) {
	set, err := f.decode(t)
	if err != nil {
		return nil, err
	}
	left := set
	for _, other := range others {
		if other == nil {
			continue
		}
		gone, err := other.decode(t)
		if err != nil {
			return nil, err
		}
		if !left.Intersection(gone).Empty() {
			left = left.Difference(gone)
		}
	}
	switch {
	case left.Empty():
		return nil, nil
	case left == set && !f.stale:
		return f, nil
	}
	return t.encode(left)
}

// encode returns a set and makes the cache hold it.
func (t *Type) encode(set *fieldpath.Set) (*fieldSet, error) {
	f, err := encodeSet(set)
	if err == nil {
		t.sets.add(f)
	}
	return f, err
}

// add makes the writer a manager of the fields that it sets.
func (w *Write) add(all managers, d *difference) (managers, error) {
	if d.changed == nil {
		return all, nil
	}
	now := w.Time
	for i := range all {
		m := &all[i]
		if m.id() != w.id() {
			continue
		}
		m.Time = &now
		set, err := d.changed.decode(d.Type)
		if err != nil {
			return nil, err
		}
		have, err := m.fields.decode(d.Type)
		if err != nil || set.Difference(have).Empty() {
			return all, err
		}
		m.fields, err = d.encode(have.Union(set))
		return all, err
	}
	id := w.id()
	return append(all, manager{metav1.ManagedFieldsEntry{
		Manager: id.name, Operation: id.operation, APIVersion: w.APIVersion, Subresource: w.Subresource, Time: &now,
	}, d.changed}), nil
}

func (w *Write) id() id {
	name := w.Manager
	if name == "" {
		name = "unknown"
	}
	return id{name, metav1.ManagedFieldsOperationUpdate, w.APIVersion, w.Subresource}
}
