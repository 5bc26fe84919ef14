package crd

import (
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// shape is the schema of a version. What is derived from it is computed on first use,
// because a cluster may have many definitions of which few are used.
type shape struct {
	structural func() *structuralschema.Structural
	validators func() validators
}

// validators validate objects of a version.
type validators struct {
	all    validation.SchemaValidator
	status validation.SchemaValidator // of the field status
	rules  *cel.Validator             // nil: there are no rules
}

// newShape returns the schema of a definition that was validated.
func newShape(v *apiextensionsv1.CustomResourceValidation) *shape {
	in := sync.OnceValue(func() *apiextensions.JSONSchemaProps { return internalSchema(v) })
	s := &shape{}
	s.structural = sync.OnceValue(func() *structuralschema.Structural {
		if in() == nil {
			return nil
		}
		out, err := structuralschema.NewStructural(in())
		if err != nil {
			return nil // unreachable: the definition was validated
		}
		return out
	})
	s.validators = sync.OnceValue(func() (out validators) {
		out.all, out.status = schemaValidator(in()), schemaValidator(nil)
		if in() == nil {
			return out
		}
		if status, ok := in().Properties["status"]; ok {
			out.status = schemaValidator(&status)
		}
		out.rules = cel.NewValidator(s.structural(), true, celconfig.PerCallLimit)
		return out
	})
	return s
}

// schemaValidator returns the validator of a schema, which accepts everything if s is
// nil.
func schemaValidator(s *apiextensions.JSONSchemaProps) validation.SchemaValidator {
	v, _, err := validation.NewSchemaValidator(s)
	if err != nil { // unreachable: the definition was validated
		v, _, _ = validation.NewSchemaValidator(nil)
	}
	return v
}

// published returns the schema for OpenAPI v3 and v2, without type and object
// metadata.
func (s *shape) published() (v3, v2 *spec.Schema) {
	if s.structural() == nil {
		return nil, nil
	}
	unfolded := s.structural().Unfold()
	v3 = unfolded.ToKubeOpenAPI()
	addEmbedded(v3, "#/components/schemas/", false)
	if s.structural().XPreserveUnknownFields {
		// kubectl would reject unknown fields beside known ones.
		return v3, &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
	}
	v2 = openapiv2.ToStructuralOpenAPIV2(unfolded).ToKubeOpenAPI()
	addEmbedded(v2, "#/definitions/", true)
	return v3, v2
}

// addEmbedded adds the metadata of embedded resources to a schema. In OpenAPI v2, those
// that keep unknown fields have none, because kubectl would reject unknown fields.
func addEmbedded(s *spec.Schema, refs string, v2 bool) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		addEmbedded(&p, refs, v2)
		s.Properties[name] = p
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema, refs, v2)
	}
	if s.AdditionalProperties != nil {
		addEmbedded(s.AdditionalProperties.Schema, refs, v2)
	}
	keeps, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	if embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !embedded || keeps && v2 {
		return
	}
	doc := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		s.SetProperty(name, *spec.StringProperty().WithDescription(doc[name]))
	}
	s.SetProperty("metadata", *spec.RefSchema(refs + "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").WithDescription(metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
	s.AddRequired("kind", "apiVersion")
}
