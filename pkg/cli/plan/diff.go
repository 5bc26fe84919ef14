package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// serverFields are the fields that the server sets at each write.
var serverFields = [][]string{
	{"metadata", "managedFields"}, {"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "uid"}, {"metadata", "creationTimestamp"}, {"status"},
}

// Changes returns the fields in which two versions of an object differ, a line
// each: "spec.replicas: 2 → 3". Values of Secrets are not shown.
func Changes(old, new *unstructured.Unstructured) []string {
	a, b := old.DeepCopy().Object, new.DeepCopy().Object
	for _, path := range serverFields {
		unstructured.RemoveNestedField(a, path...)
		unstructured.RemoveNestedField(b, path...)
	}
	d := &differ{hide: new.GetKind() == "Secret"}
	d.walk("", a, b)
	return d.lines
}

type differ struct {
	hide  bool
	lines []string
}

func (d *differ) walk(path string, a, b any) {
	if reflect.DeepEqual(a, b) {
		return
	}
	am, aIsMap := a.(map[string]any)
	bm, bIsMap := b.(map[string]any)
	if aIsMap && bIsMap {
		for _, key := range keys(am, bm) {
			d.walk(join(path, key), am[key], bm[key])
		}
		return
	}
	as, bs := named(a), named(b)
	if as != nil && bs != nil {
		for _, key := range keys(as, bs) {
			d.walk(path+"["+key+"]", as[key], bs[key])
		}
		return
	}
	d.lines = append(d.lines, fmt.Sprintf("%s: %s → %s", path, d.text(a), d.text(b)))
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// keys returns the keys of both maps, sorted.
func keys(a, b map[string]any) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// named returns the items of a list by their names; nil unless each has one.
func named(list any) map[string]any {
	items, ok := list.([]any)
	if !ok {
		return nil
	}
	out := map[string]any{}
	for _, item := range items {
		m, _ := item.(map[string]any)
		name, ok := m["name"].(string)
		if !ok {
			return nil
		}
		out[name] = item
	}
	return out
}

// maxValue bounds the text of a value, in bytes.
const maxValue = 120

func (d *differ) text(v any) string {
	switch {
	case v == nil:
		return "(none)"
	case d.hide:
		return "(hidden)"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > maxValue {
		return string(text[:maxValue]) + "…"
	}
	return string(text)
}
