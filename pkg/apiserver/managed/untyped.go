package managed

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Entries is obj.GetManagedFields, several times faster.
func Entries(obj *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	field, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "metadata", "managedFields")
	items, ok := field.([]any)
	if !ok {
		return nil
	}
	out := make([]metav1.ManagedFieldsEntry, len(items))
	for i, item := range items {
		if m, ok := item.(map[string]any); !ok || !readEntry(&out[i], m) {
			return obj.GetManagedFields()
		}
	}
	return out
}

// readEntry fills e and reports whether it could.
func readEntry(e *metav1.ManagedFieldsEntry, m map[string]any) bool {
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
			raw, err := json.Marshal(v)
			e.FieldsV1, ok = &metav1.FieldsV1{}, err == nil
			e.FieldsV1.SetRawBytes(raw)
		}
		if !ok {
			return false
		}
	}
	return true
}
