package managed

import (
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Same reports whether two objects of one type are equal but for their managed fields
// and resourceVersion. It looks at what changes often first.
func Same(a, b metav1.Object) bool {
	if x, untyped := a.(*unstructured.Unstructured); untyped {
		return sameMaps(x.Object, b.(*unstructured.Unstructured).Object, "metadata", "managedFields", "resourceVersion")
	}
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := x.NumField() - 1; i >= 0; i-- {
		if meta, ok := x.Field(i).Addr().Interface().(*metav1.ObjectMeta); ok {
			p, q := *meta, *y.Field(i).Addr().Interface().(*metav1.ObjectMeta)
			p.ManagedFields, p.ResourceVersion = q.ManagedFields, q.ResourceVersion
			if !equal(reflect.ValueOf(&p).Elem(), reflect.ValueOf(&q).Elem()) {
				return false
			}
		} else if !equal(x.Field(i), y.Field(i)) {
			return false
		}
	}
	return true
}

// sameMaps reports whether two maps are equal but for fields of the field inner.
func sameMaps(a, b map[string]any, inner string, but ...string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, v := range a {
		other, ok := b[key]
		if key == inner {
			v, other = without(v, but), without(other, but)
		}
		if !ok || !equal(reflect.ValueOf(&v).Elem(), reflect.ValueOf(&other).Elem()) {
			return false
		}
	}
	return true
}

// without returns a map without some keys.
func without(v any, keys []string) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	m = maps.Clone(m)
	for _, key := range keys {
		delete(m, key)
	}
	return m
}
