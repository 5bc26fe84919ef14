package managed

import (
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// item is an item of a list whose items have owners.
type item struct {
	value   reflect.Value
	new     bool
	text    string                // the key, if it is one string
	element fieldpath.PathElement // else
}

// items compares the items of two lists, of which one may be invalid. Items without
// a key are not tracked.
func (w *walker) items(l *listShape, a, b reflect.Value) {
	start := len(w.list)
	texts := true
	for i, v := range [...]reflect.Value{a, b} {
		for j := 0; texts && v.IsValid() && j < v.Len(); j++ {
			one := item{value: v.Index(j), new: i == 1}
			one.text, texts = l.text(one.value)
			w.list = append(w.list, one)
		}
	}
	order := func(x, y item) int { return strings.Compare(x.text, y.text) }
	if !texts {
		order = func(x, y item) int { return x.element.Compare(y.element) }
		w.list = w.list[:start]
		for i, v := range [...]reflect.Value{a, b} {
			for j := 0; v.IsValid() && j < v.Len(); j++ {
				if e, ok := l.element(v.Index(j)); ok {
					w.list = append(w.list, item{value: v.Index(j), new: i == 1, element: e})
				}
			}
		}
	}
	all := w.list[start:]
	slices.SortStableFunc(all, order)
	for len(all) > 0 {
		n, old := 1, 0
		for n < len(all) && order(all[n], all[0]) == 0 {
			n++
		}
		for old < n && !all[old].new {
			old++
		}
		w.group(l, all[:old], all[old:n])
		all = all[n:]
	}
	w.list = w.list[:start]
}

// text returns the key of an item, if it is one string.
func (l *listShape) text(v reflect.Value) (string, bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if len(l.keys) > 1 {
		return "", false
	}
	if len(l.keys) == 1 {
		if v.Kind() != reflect.Struct {
			return "", false
		}
		f := value.TypeReflectEntryOf(v.Type()).Fields()[l.keys[0].name]
		if f == nil {
			return "", false
		}
		v = f.GetFrom(v)
	}
	return v.String(), v.Kind() == reflect.String
}

// group compares the items with one key in the old and in the new list. As upstream,
// items with the same key are one field.
func (w *walker) group(l *listShape, old, new []item) {
	start := len(w.arena)
	if len(old) > 0 {
		w.arena = old[0].append(w.arena, l)
	} else {
		w.arena = new[0].append(w.arena, l)
	}
	w.path = append(w.path, w.arena[start:])
	first := func(items []item) (v reflect.Value) {
		if len(items) > 0 {
			v = items[0].value
		}
		return v
	}
	switch {
	case len(old) <= 1 && len(new) <= 1:
		w.differ(l.item, first(old), first(new))
	case len(old) > 1 && len(new) > 1:
		if !slices.EqualFunc(old, new, func(x, y item) bool { return equal(x.value, y.value) }) {
			w.changed.add(w.path)
		}
	case len(old) > 1:
		w.removed.add(w.path)
		if len(new) > 0 {
			w.differ(l.item, reflect.Value{}, first(new))
		}
	default:
		w.changed.add(w.path)
		if len(old) > 0 {
			w.differ(l.item, first(old), reflect.Value{})
		}
	}
	w.leave()
	w.arena = w.arena[:start]
}

// element returns the path element of an item.
func (l *listShape) element(v reflect.Value) (e fieldpath.PathElement, ok bool) {
	v, f := resolve(v)
	if l.keys == nil {
		if f != scalar {
			return e, false
		}
		one := value.NewValueInterface(simple(v))
		return fieldpath.PathElement{Value: &one}, true
	}
	if f != object {
		return e, false
	}
	keys := make(value.FieldList, 0, len(l.keys))
	for _, k := range l.keys {
		if have, ok := keyOf(v, k); ok {
			keys = append(keys, value.Field{Name: k.name, Value: value.NewValueInterface(have)})
		}
	}
	return fieldpath.PathElement{Key: &keys}, len(keys) > 0
}

// keyOf returns the value of a key of an item.
func keyOf(item reflect.Value, k listKey) (any, bool) {
	var v reflect.Value
	if item.Kind() == reflect.Struct {
		if f := value.TypeReflectEntryOf(item.Type()).Fields()[k.name]; f != nil {
			v = f.GetFrom(item)
		}
	} else {
		v = entry(item, k.name)
	}
	if !v.IsValid() {
		return k.fallback, k.fallback != nil
	}
	v, f := resolve(v)
	if f != scalar {
		return nil, true
	}
	return simple(v), true
}

// simple returns a scalar as one of the types of decoded JSON.
func simple(v reflect.Value) any {
	switch {
	case v.Kind() == reflect.String:
		return v.String()
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return int64(v.Uint())
	case v.CanFloat():
		return v.Float()
	case v.Kind() == reflect.Bool:
		return v.Bool()
	}
	return nil
}

// append appends the path element of an item, quoted.
func (i *item) append(buf []byte, l *listShape) []byte {
	switch {
	case i.element != fieldpath.PathElement{}:
		return appendElement(buf, i.element)
	case !plain(i.text):
		e, _ := l.element(i.value)
		return appendElement(buf, e)
	case l.keys == nil:
		return append(append(append(buf, `"v:\"`...), i.text...), `\""`...)
	}
	buf = append(append(append(buf, `"k:{\"`...), l.keys[0].name...), `\":\"`...)
	return append(append(buf, i.text...), `\"}"`...)
}
