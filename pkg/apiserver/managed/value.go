package managed

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// form is what a value is in JSON.
type form int

const (
	absent form = iota
	null
	scalar
	list
	object
)

// intOrString is converted without its encoder, because pods have many of them.
var intOrString = reflect.TypeFor[intstr.IntOrString]()

// resolve follows pointers and converts values that encode themselves, such as
// times, to what they are in JSON. The invalid Value stands for an absent field.
func resolve(v reflect.Value) (reflect.Value, form) {
	for {
		if !v.IsValid() {
			return v, absent
		}
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if v.IsNil() {
				return v, null
			}
			v = v.Elem()
			continue
		case reflect.Map:
			if v.IsNil() {
				return v, null
			}
			return v, object
		case reflect.Slice:
			if v.IsNil() {
				return v, null
			}
			if v.Type().Elem().Kind() == reflect.Uint8 {
				return v, scalar
			}
			return v, list
		case reflect.Struct:
			if v.Type() == intOrString {
				if v.Field(0).Int() == int64(intstr.Int) {
					return v.Field(1), scalar
				}
				return v.Field(2), scalar
			}
			entry := value.TypeReflectEntryOf(v.Type())
			if !entry.CanConvertToUnstructured() {
				return v, object
			}
			plain, err := entry.ToUnstructured(v)
			if err != nil || plain == nil {
				return reflect.Value{}, null
			}
			v = reflect.ValueOf(plain)
			continue
		}
		return v, scalar
	}
}

// equal reports whether two values are the same in JSON. Empty and absent lists and
// maps of Go types are equal, because no encoding of the store tells them apart.
func equal(a, b reflect.Value) bool {
	if a.IsValid() != b.IsValid() {
		return false
	}
	if !a.IsValid() {
		return true
	}
	if a.Type() != b.Type() {
		return a.Kind() == reflect.Interface && equal(a.Elem(), b) || b.Kind() == reflect.Interface && equal(a, b.Elem()) || equalNumbers(a, b)
	}
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return a.Kind() == reflect.Pointer && a.Pointer() == b.Pointer() || equal(a.Elem(), b.Elem())
	case reflect.Slice:
		return equalLists(a, b)
	case reflect.Map:
		return equalMaps(a, b)
	case reflect.Struct:
		return equalStructs(a, b)
	}
	return a.Equal(b)
}

func equalNumbers(a, b reflect.Value) bool {
	switch {
	case a.CanInt() && b.CanFloat():
		return float64(a.Int()) == b.Float()
	case a.CanFloat() && b.CanInt():
		return a.Float() == float64(b.Int())
	}
	return false
}

func equalLists(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a.Pointer() == b.Pointer() {
		return true
	}
	for i := range a.Len() {
		if !equal(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

func equalMaps(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a, ok := a.Interface().(map[string]string); ok {
		b := b.Interface().(map[string]string)
		for key, v := range a {
			if other, ok := b[key]; !ok || other != v {
				return false
			}
		}
		return true
	}
	for it := a.MapRange(); it.Next(); {
		if !equal(it.Value(), b.MapIndex(it.Key())) {
			return false
		}
	}
	return true
}

func equalStructs(a, b reflect.Value) bool {
	if a.CanAddr() && b.CanAddr() {
		switch t := a.Addr().Interface().(type) {
		case *metav1.Time:
			return t.Unix() == b.Addr().Interface().(*metav1.Time).Unix()
		case *metav1.MicroTime:
			return t.UnixMicro() == b.Addr().Interface().(*metav1.MicroTime).UnixMicro()
		}
	}
	if value.TypeReflectEntryOf(a.Type()).CanConvertToUnstructured() {
		x, _ := resolve(a)
		y, _ := resolve(b)
		return equal(x, y)
	}
	for i := range a.NumField() {
		if !equal(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}
