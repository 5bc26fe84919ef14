package peers

import (
	"encoding/json"
	"fmt"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

// Gadget is a custom resource, as an operator written with controller-runtime has it: the
// stored version has a number where the old version has a text.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Size   int    `json:"size"`
		Colour string `json:"colour,omitempty"`
	} `json:"spec,omitempty"`
	Status struct {
		Ready bool `json:"ready,omitempty"`
	} `json:"status,omitempty"`
}

type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

// OldGadget is a Gadget of the version v1beta1.
type OldGadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Size   string `json:"size"`
		Colour string `json:"colour,omitempty"`
	} `json:"spec,omitempty"`
}

func clone[T any](in *T) *T {
	var out T
	data, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic(err)
	}
	return &out
}

func (g *Gadget) DeepCopyObject() runtime.Object     { return clone(g) }
func (g *GadgetList) DeepCopyObject() runtime.Object { return clone(g) }
func (g *OldGadget) DeepCopyObject() runtime.Object  { return clone(g) }

// Hub marks the version that the other one is converted to and from.
func (g *Gadget) Hub() {}

func (g *OldGadget) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Gadget)
	to.ObjectMeta, to.Spec.Colour = g.ObjectMeta, g.Spec.Colour
	var err error
	to.Spec.Size, err = strconv.Atoi(g.Spec.Size)
	return err
}

func (g *OldGadget) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Gadget)
	g.ObjectMeta, g.Spec.Colour, g.Spec.Size = from.ObjectMeta, from.Spec.Colour, strconv.Itoa(from.Spec.Size)
	return nil
}

var gadgets = schema.GroupVersion{Group: "things.example.com", Version: "v1"}

func addGadgets(s *runtime.Scheme) {
	old := schema.GroupVersion{Group: gadgets.Group, Version: "v1beta1"}
	s.AddKnownTypeWithName(gadgets.WithKind("Gadget"), &Gadget{})
	s.AddKnownTypeWithName(gadgets.WithKind("GadgetList"), &GadgetList{})
	s.AddKnownTypeWithName(old.WithKind("Gadget"), &OldGadget{})
	metav1.AddToGroupVersion(s, gadgets)
	metav1.AddToGroupVersion(s, old)
}

func gadgetCRD() *apiextensionsv1.CustomResourceDefinition {
	version := func(name, size string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		object := func(fields map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
			return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: fields}
		}
		root := object(map[string]apiextensionsv1.JSONSchemaProps{
			"spec":   object(map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: size}, "colour": {Type: "string"}}),
			"status": object(map[string]apiextensionsv1.JSONSchemaProps{"ready": {Type: "boolean"}}),
		})
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("gadgets.", gadgets.Group)},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gadgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", "integer", true), version("v1beta1", "string", false)},
		},
	}
}
