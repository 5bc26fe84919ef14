package peers

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
)

// A client that prefers CBOR meets a server that does not read it, as upstream's
// does not unless a feature gate is on: the first write answers 415, whereupon
// client-go writes JSON for the rest of the client's life. Its server-side apply
// does not fall back, neither here nor with upstream's server. Reads always work.
func TestAClientThatPrefersCBOR(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	featurestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	s := startServer(t)
	c, err := dynamic.NewForConfig(s.config())
	check(t, err)
	maps := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"k": "v"},
	}}
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	check(t, err)
	if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Fatalf("the first write: %v, want 415: only that makes client-go fall back", err)
	}
	_, err = maps.Create(t.Context(), object, metav1.CreateOptions{})
	check(t, err)
	if _, err := maps.Apply(t.Context(), "c", object, metav1.ApplyOptions{FieldManager: "peer"}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("an apply: %v, want 415", err)
	}
	got, err := maps.Get(t.Context(), "c", metav1.GetOptions{})
	check(t, err)
	if value, _, _ := unstructured.NestedString(got.Object, "data", "k"); value != "v" {
		t.Errorf("read %v", got.Object)
	}
	watch, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	check(t, err)
	defer watch.Stop()
	if e := <-watch.ResultChan(); e.Type != "ADDED" {
		t.Errorf("watched %+v", e)
	}
}
