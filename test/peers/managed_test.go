package peers

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"
)

// A client that moves from client-side to server-side apply, as kubectl and Helm 4 do:
// it writes its Update entry into its Apply entry by csaupgrade, and then applies
// without conflicts, and what it no longer applies is removed.
func TestAClientThatMovesToServerSideApply(t *testing.T) {
	s := startServer(t)
	c, err := dynamic.NewForConfig(s.config())
	check(t, err)
	maps := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	object := func(data map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": data}}
	}
	made, err := maps.Create(t.Context(), object(map[string]any{"a": "1", "b": "1"}), metav1.CreateOptions{FieldManager: "helm"})
	check(t, err)
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(made, sets.New("helm"), "helm")
	check(t, err)
	if patch == nil {
		t.Fatalf("nothing to move: %v", made.GetManagedFields())
	}
	_, err = maps.Patch(t.Context(), "c", types.JSONPatchType, patch, metav1.PatchOptions{})
	check(t, err)
	got, err := maps.Apply(t.Context(), "c", object(map[string]any{"a": "2"}), metav1.ApplyOptions{FieldManager: "helm"})
	check(t, err)
	data, _, err := unstructured.NestedStringMap(got.Object, "data")
	check(t, err)
	if text, _ := json.Marshal(data); string(text) != `{"a":"2"}` {
		t.Errorf("data %s", text)
	}
	if m := got.GetManagedFields(); len(m) != 1 || m[0].Manager != "helm" || m[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managers %+v", m)
	}
}
