package managed

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"podium/pkg/scheme"
)

// Entries is obj.GetManagedFields, several times faster.
func Entries(obj *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	return read(obj, readEntry)
}

// Heads is Entries for callers that do not read the FieldsV1, which may be missing.
func Heads(obj *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	return read(obj, readHead)
}

func read(obj *unstructured.Unstructured, one func(*metav1.ManagedFieldsEntry, map[string]any) bool) []metav1.ManagedFieldsEntry {
	field, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "metadata", "managedFields")
	items, ok := field.([]any)
	if !ok {
		return nil
	}
	out := make([]metav1.ManagedFieldsEntry, len(items))
	for i, item := range items {
		if m, ok := item.(map[string]any); !ok || !one(&out[i], m) {
			return obj.GetManagedFields()
		}
	}
	return out
}

// SetEntries is obj.SetManagedFields, several times faster.
func SetEntries(obj *unstructured.Unstructured, entries []metav1.ManagedFieldsEntry) {
	metadata, ok := obj.Object["metadata"].(map[string]any)
	if !ok || len(entries) == 0 {
		obj.SetManagedFields(entries)
		return
	}
	items := make([]any, len(entries))
	for i := range entries {
		if items[i], ok = writeEntry(&entries[i]); !ok {
			obj.SetManagedFields(entries)
			return
		}
	}
	metadata["managedFields"] = items
}

// writeEntry returns e as a tree and reports whether it could.
func writeEntry(e *metav1.ManagedFieldsEntry) (map[string]any, bool) {
	if e.FieldsV1 == nil || e.Time != nil && e.Time.IsZero() {
		return nil, false // rare
	}
	m := make(map[string]any, 7)
	set := func(name, text string) {
		if text != "" {
			m[name] = text
		}
	}
	set("manager", e.Manager)
	set("operation", string(e.Operation))
	set("apiVersion", e.APIVersion)
	set("fieldsType", e.FieldsType)
	set("subresource", e.Subresource)
	if e.Time != nil {
		set("time", e.Time.UTC().Format(time.RFC3339))
	}
	var fields map[string]any
	err := kjson.UnmarshalCaseSensitivePreserveInts(e.FieldsV1.GetRawBytes(), &fields)
	m["fieldsV1"] = fields
	return m, err == nil && fields != nil
}

// readEntry fills e and reports whether it could.
func readEntry(e *metav1.ManagedFieldsEntry, m map[string]any) bool {
	if v, has := m["fieldsV1"]; has {
		raw, err := scheme.TreeJSON(v)
		if err != nil || v == nil {
			return false
		}
		e.FieldsV1 = &metav1.FieldsV1{}
		e.FieldsV1.SetRawBytes(raw)
	}
	return readHead(e, m)
}

// readHead is readEntry without the FieldsV1.
func readHead(e *metav1.ManagedFieldsEntry, m map[string]any) bool {
	for name, v := range m {
		text, ok := v.(string)
		switch name {
		case "manager":
			e.Manager = text
		case "operation":
			e.Operation = metav1.ManagedFieldsOperationType(text)
		case "apiVersion":
			e.APIVersion = text
		case "fieldsType":
			e.FieldsType = text
		case "subresource":
			e.Subresource = text
		case "time":
			e.Time = &metav1.Time{}
			ok = ok && e.Time.UnmarshalQueryParameter(text) == nil
		case "fieldsV1":
			ok = true
		}
		if !ok {
			return false
		}
	}
	return true
}
