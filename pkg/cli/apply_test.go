package cli

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cli/rest"
)

func TestChangedNothing(t *testing.T) {
	object := func(revision string, replicas int64, status, owned string) *rest.Object {
		o := &rest.Object{Object: map[string]any{
			"metadata": map[string]any{"name": "web", "resourceVersion": revision},
			"spec":     map[string]any{"replicas": replicas, "paused": false},
			"status":   status,
		}}
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "podium", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: &metav1.FieldsV1{Raw: []byte(owned)}}})
		return o
	}
	applied := &rest.Object{Object: map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"replicas": int64(2)}}}
	before := object("1", 2, "new", `{"f:spec":{"f:replicas":{}}}`)
	for name, row := range map[string]struct {
		reason string
		after  *rest.Object
		want   bool
	}{
		"Same":     {"nothing happened", before, true},
		"Status":   {"a controller wrote its status at that moment", object("2", 2, "old", `{"f:spec":{"f:replicas":{}}}`), true},
		"Value":    {"a field of ours changed", object("2", 3, "new", `{"f:spec":{"f:replicas":{}}}`), false},
		"NotGiven": {"a field that we no longer give was taken away", object("2", 2, "new", `{}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			o := &applyOptions{change: change{Manager: "podium"}}
			if got := o.changedNothing(applied, before, row.after); got != row.want {
				t.Errorf("%t, want %t: %s", got, row.want, row.reason)
			}
		})
	}
}
