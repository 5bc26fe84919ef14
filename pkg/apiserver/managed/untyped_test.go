package managed_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"podium/pkg/apiserver/managed"
)

// FuzzEntries compares SetEntries and Entries with the methods that they stand for.
func FuzzEntries(f *testing.F) {
	f.Add("m", "Update", "v1", "FieldsV1", "status", `{"f:spec":{"f:a":{}}}`, int64(1700000000))
	f.Add("", "", "", "", "", "", int64(0))
	f.Add("m", "Apply", "v1", "FieldsV1", "", `null`, int64(-1))
	f.Add("m", "Apply", "v1", "FieldsV1", "", `[1]`, int64(-62135596800))
	f.Fuzz(func(t *testing.T, manager, operation, version, kind, sub, fields string, seconds int64) {
		entry := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationType(operation), APIVersion: version, FieldsType: kind, Subresource: sub}
		if fields != "" {
			entry.FieldsV1 = &metav1.FieldsV1{Raw: []byte(fields)}
		}
		if seconds != 0 {
			entry.Time = &metav1.Time{Time: time.Unix(seconds%(1<<36), 0)}
		}
		got, want := object(), object()
		managed.SetEntries(got, []metav1.ManagedFieldsEntry{entry, {Manager: "b"}})
		want.SetManagedFields([]metav1.ManagedFieldsEntry{entry, {Manager: "b"}})
		if diff := cmp.Diff(want.Object, got.Object); diff != "" {
			t.Errorf("set: %s", diff)
		}
		if diff := cmp.Diff(want.GetManagedFields(), managed.Entries(want)); diff != "" {
			t.Errorf("get: %s", diff)
		}
		ignore := cmpopts.IgnoreFields(metav1.ManagedFieldsEntry{}, "FieldsV1")
		if diff := cmp.Diff(want.GetManagedFields(), managed.Heads(want), ignore); diff != "" {
			t.Errorf("heads: %s", diff)
		}
	})
}

func object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}}}
}

func TestSetNoEntries(t *testing.T) {
	for _, entries := range [][]metav1.ManagedFieldsEntry{nil, {}} {
		got, want := object(), object()
		for _, obj := range []*unstructured.Unstructured{got, want} {
			obj.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "old"}}
		}
		managed.SetEntries(got, entries)
		want.SetManagedFields(entries)
		if diff := cmp.Diff(want.Object, got.Object); diff != "" {
			t.Error(diff)
		}
	}
}
