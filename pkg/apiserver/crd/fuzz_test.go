package crd_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"podium/pkg/apiserver/crd"
	"podium/pkg/apiserver/crd/definition"
)

// define returns a definition with one version, and false if it is not valid.
func define(schema []byte, column string) (*apiextensionsv1.CustomResourceDefinition, bool) {
	props := &apiextensionsv1.JSONSchemaProps{}
	if json.Unmarshal(schema, props) != nil {
		return nil, false
	}
	c := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props},
				Subresources:             &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "C", Type: "string", JSONPath: column}},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
	c.Status.AcceptedNames = c.Spec.Names
	definition.Warnings(c, nil)
	return c, len(definition.Validate(c, nil)) == 0
}

// FuzzSchema checks that no schema and no custom resource make the server panic, and
// that defaults and pruning are idempotent.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"integer","default":1}}}}}`), ".spec.a", []byte(`{"spec":{"b":1}}`))
	f.Add([]byte(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`), ".spec", []byte(`{"spec":[1,null]}`))
	f.Add([]byte(`{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}}}}`), `.l[?(@.k=="a")]`, []byte(`{"l":[{"k":"a"},{"k":"a"},{}]}`))
	f.Add([]byte(`{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},"p":{"x-kubernetes-int-or-string":true}},"x-kubernetes-validations":[{"rule":"has(self.p)"}]}`), ".e", []byte(`{"e":{"metadata":{"labels":5}},"p":"x"}`))
	f.Fuzz(func(t *testing.T, schema []byte, column string, object []byte) {
		c, ok := define(schema, column)
		if !ok {
			return
		}
		k := crd.Kind(c, &atomic.Bool{}, nil)
		u := &unstructured.Unstructured{}
		if kjson.UnmarshalCaseSensitivePreserveInts(object, &u.Object) != nil || u.Object == nil {
			return
		}
		delete(u.Object, "metadata") // the decoder checks its types
		k.Prune(u)
		k.Default(u)
		again := u.DeepCopy()
		k.Prune(again)
		k.Default(again)
		one, _ := json.Marshal(u.Object)
		if two, _ := json.Marshal(again.Object); string(one) != string(two) {
			t.Errorf("pruned and defaulted: %s, and again: %s", one, two)
		}
		k.Validate(u, nil)
		k.Validate(again, u)
		k.Row(u, time.Unix(0, 0))
		k.Subresources[0].ValidatePart(again, u)
	})
}
