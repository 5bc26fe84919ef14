package managed

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// walker compares two values and writes the fields that differ. It visits fields in
// the order of FieldsV1.
type walker struct {
	changed writer // fields that only the new value has, or that have another value
	removed writer // fields that only the old value has
	path    [][]byte
	arena   []byte // memory of path elements
	list    []item // memory of lists
}

var walkers = sync.Pool{New: func() any { return new(walker) }}

// skips are fields of an object that are not tracked: all of names, and those of
// metadata in the field metadata.
type skips struct {
	names    map[string]bool
	metadata *skips
}

// field compares the field name of two objects. An invalid value is an absent field.
func (w *walker) field(s *shape, element []byte, a, b reflect.Value) {
	w.path = append(w.path, element)
	w.differ(s, a, b)
	w.leave()
}

// leave removes the last path element.
func (w *walker) leave() {
	w.path = w.path[:len(w.path)-1]
	w.changed.leave(len(w.path))
	w.removed.leave(len(w.path))
}

// differ writes the path and the fields below it, as far as they differ between a
// and b. An invalid value is an absent field.
func (w *walker) differ(s *shape, a, b reflect.Value) {
	a, from := resolve(a)
	b, to := resolve(b)
	before, after := s.allow(from), s.allow(to)
	if to == absent {
		after = before
	}
	if from != absent && before != after { // as upstream: compared in both forms
		w.differAs(before, s, a, b, from, to)
	}
	w.differAs(after, s, a, b, from, to)
}

// allow returns the form in which the shape divides a value of the form f. As
// upstream, null and values of forms that the shape does not allow may be anything.
func (s *shape) allow(f form) form {
	switch {
	case f == scalar && s.scalar, f == list && s.list != nil, f == object && s.object != nil:
		return f
	case s.object != nil:
		return object
	case s.scalar:
		return scalar
	}
	return list
}

// differAs is differ for values of the form as. Those of another form count as null.
func (w *walker) differAs(as form, s *shape, a, b reflect.Value, from, to form) {
	if as == scalar || as == list && s.list.atomic || as == object && s.object.atomic {
		if from != absent && to != absent && from == to && (from == null || equal(a, b)) {
			return
		}
		w.mark(from, to, true)
		return
	}
	a, b = only(a, from == as), only(b, to == as)
	w.mark(from, to, a.IsValid() && !b.IsValid() && empty(a) || b.IsValid() && !a.IsValid() && empty(b))
	switch {
	case !a.IsValid() && !b.IsValid():
	case as == list:
		w.items(s.list, a, b)
	default:
		w.fields(s.object, a, b, nil)
	}
}

// mark writes the present path if it was added or removed, or has another value.
func (w *walker) mark(from, to form, other bool) {
	switch {
	case to == absent:
		w.removed.add(w.path)
	case from == absent || other:
		w.changed.add(w.path)
	}
}

func only(v reflect.Value, ok bool) reflect.Value {
	if ok {
		return v
	}
	return reflect.Value{}
}

// empty reports whether a list or a map has no elements.
func empty(v reflect.Value) bool { return v.Kind() != reflect.Struct && v.Len() == 0 }

// plan is how the fields of a Go struct are visited.
type plan struct {
	of     reflect.Type
	fields []planField
}

type planField struct {
	*value.FieldCacheEntry
	element []byte // the path element
	shape   *shape
	index   int  // of the field in the struct; -1: it is in an inlined struct
	omits   bool // the field is absent if it is empty
}

func (o *objectShape) planOf(t reflect.Type) *plan {
	if p := o.plan.Load(); p != nil && p.of == t {
		return p
	}
	p := &plan{of: t}
	zero := reflect.Zero(t)
	for _, f := range value.TypeReflectEntryOf(t).OrderedFields() {
		index := -1
		for i := range t.NumField() {
			if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name == f.JsonName {
				index = i
			}
		}
		p.fields = append(p.fields, planField{f, appendFieldName(nil, f.JsonName), o.field(f.JsonName), index, f.CanOmit(f.GetFrom(zero))})
	}
	o.plan.Store(p)
	return p
}

// get returns the field of a struct, the invalid value if it is absent.
func (f *planField) get(v reflect.Value) reflect.Value {
	switch {
	case !v.IsValid():
		return v
	case f.index >= 0:
		v = v.Field(f.index)
	default:
		v = f.GetFrom(v)
	}
	if f.omits && (v.Kind() == reflect.Pointer && v.IsNil() || v.Kind() != reflect.Pointer && f.CanOmit(v)) {
		return reflect.Value{}
	}
	return v
}

// fields compares the fields of two objects, of which one may be invalid. skip may
// be nil.
func (w *walker) fields(o *objectShape, a, b reflect.Value, skip *skips) {
	t := a
	if !a.IsValid() {
		t = b
	}
	if t.Kind() != reflect.Struct {
		w.entries(o, a, b, skip)
		return
	}
	p := o.planOf(t.Type())
	for i := range p.fields {
		f := &p.fields[i]
		x, y := f.get(a), f.get(b)
		if x.IsValid() || y.IsValid() {
			w.one(f.JsonName, f.element, f.shape, x, y, skip)
		}
	}
}

// one compares one field of two objects.
func (w *walker) one(name string, element []byte, s *shape, x, y reflect.Value, skip *skips) {
	switch {
	case skip != nil && skip.names[name]:
	case skip != nil && skip.metadata != nil && name == "metadata" && s.object != nil:
		w.path = append(w.path, element)
		a, from := resolve(x)
		b, to := resolve(y)
		if a, b = only(a, from == object), only(b, to == object); a.IsValid() || b.IsValid() {
			w.fields(s.object, a, b, skip.metadata)
		}
		w.leave()
	case x.IsValid() && y.IsValid() && equal(x, y):
	case s.list == nil && s.object == nil:
		w.path = append(w.path, element)
		w.mark(formOf(x), formOf(y), true)
		w.leave()
	default:
		w.field(s, element, x, y)
	}
}

// formOf tells absent values from others.
func formOf(v reflect.Value) form {
	if v.IsValid() {
		return scalar
	}
	return absent
}

// entries compares the entries of two maps, of which one may be invalid.
func (w *walker) entries(o *objectShape, a, b reflect.Value, skip *skips) {
	var names []string
	for _, m := range [...]reflect.Value{a, b} {
		if m.IsValid() {
			for it := m.MapRange(); it.Next(); {
				names = append(names, it.Key().String())
			}
		}
	}
	slices.Sort(names)
	start := len(w.arena)
	for _, name := range slices.Compact(names) {
		w.arena = appendFieldName(w.arena[:start], name)
		w.one(name, w.arena[start:], o.field(name), entry(a, name), entry(b, name), skip)
	}
	w.arena = w.arena[:start]
}

// entry returns the entry of a map, the invalid value if it is absent.
func entry(m reflect.Value, name string) reflect.Value {
	if !m.IsValid() {
		return m
	}
	key := reflect.ValueOf(name)
	if t := m.Type().Key(); t != key.Type() {
		key = key.Convert(t)
	}
	return m.MapIndex(key)
}
