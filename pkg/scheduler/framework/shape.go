package framework

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strings"

	"podium/pkg/scheduler/snapshot"
)

// AppendShape appends a plugin's part of a pod's shape to b. It is equal for pods of which the
// plugin reads the same values.
func AppendShape(b []byte, r Reader, pod *snapshot.Pod) []byte {
	values := r.Reads(pod)
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, v := range values {
		b = appendValue(b, reflect.ValueOf(v))
	}
	return b
}

// appendValue encodes v such that equal encodings mean equal values. It follows pointers; v must
// not contain cycles, functions or channels.
func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return append(b, 0)
		}
		return appendValue(append(b, 1), v.Elem())
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Slice, reflect.Array:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
		return b
	case reflect.Map:
		return appendMap(b, v)
	}
	if v.CanUint() {
		return binary.AppendUvarint(b, v.Uint())
	}
	return binary.AppendVarint(b, v.Int())
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendMap encodes a map with string keys in key order.
func appendMap(b []byte, v reflect.Value) []byte {
	b = binary.AppendUvarint(b, uint64(v.Len()))
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	for _, k := range keys {
		b = appendValue(appendString(b, k.String()), v.MapIndex(k))
	}
	return b
}
