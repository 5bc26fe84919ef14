package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMigrated(t *testing.T) {
	const (
		annotation = `"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}`
		a          = `{"f:data":{"f:a":{}}}`
		ab         = `{"f:data":{"f:a":{},"f:b":{}},` + annotation + `}`
		b          = `{"f:data":{"f:b":{}},` + annotation + `}`
	)
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, version, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: version, FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
	}
	status := entry("kubectl-client-side-apply", metav1.ManagedFieldsOperationUpdate, "v1", b)
	status.Subresource = "status"
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	for name, row := range map[string]struct {
		reason     string
		have, want []metav1.ManagedFieldsEntry
	}{
		"First":       {"there was no server-side apply yet", []metav1.ManagedFieldsEntry{entry("kubectl-client-side-apply", update, "v1", b), entry("edit", update, "v1", a)}, []metav1.ManagedFieldsEntry{entry("edit", update, "v1", a), entry("podium", apply, "v1", b)}},
		"Later":       {"the fields are added to those of an earlier server-side apply", []metav1.ManagedFieldsEntry{entry("podium", apply, "v1", a), entry("kubectl-client-side-apply", update, "v1", b)}, []metav1.ManagedFieldsEntry{entry("podium", apply, "v1", ab)}},
		"TwoManagers": {"both own the annotation", []metav1.ManagedFieldsEntry{entry("one", update, "v1", b), entry("other", update, "v1", ab)}, []metav1.ManagedFieldsEntry{entry("podium", apply, "v1", ab)}},
		"Version":     {"fields of another version are not compared", []metav1.ManagedFieldsEntry{entry("podium", apply, "v2", a), entry("kubectl-client-side-apply", update, "v1", b)}, []metav1.ManagedFieldsEntry{entry("podium", apply, "v2", a)}},
		"Update":      {"an update without the annotation is none", []metav1.ManagedFieldsEntry{entry("edit", update, "v1", a)}, nil},
		"Done":        {"it was migrated before", []metav1.ManagedFieldsEntry{entry("podium", apply, "v1", b)}, nil},
		"Subresource": {"it is not the object's", []metav1.ManagedFieldsEntry{status}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := migrated(row.have, "podium")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.reason, diff)
			}
		})
	}
	if _, err := migrated([]metav1.ManagedFieldsEntry{entry("x", update, "v1", "[")}, "podium"); err == nil {
		t.Error("fields that cannot be read are no error")
	}
}
