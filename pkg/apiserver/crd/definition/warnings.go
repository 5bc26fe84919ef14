package definition

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Warnings returns a warning for each format in the schemas that is not known, and
// therefore not validated, unless old has it, too.
func Warnings(obj, old *apiextensionsv1.CustomResourceDefinition) (out []string) {
	var before []string
	if old != nil {
		before = unknownFormats(old)
	}
	for _, format := range unknownFormats(obj) {
		if !slices.Contains(before, format) {
			out = append(out, fmt.Sprintf("unrecognized format %q", format))
		}
	}
	return out
}

func unknownFormats(obj *apiextensionsv1.CustomResourceDefinition) (out []string) {
	in, err := internal(obj)
	if err != nil {
		return nil
	}
	var visit func(s *apiextensions.JSONSchemaProps)
	visit = func(s *apiextensions.JSONSchemaProps) {
		if s.Format != "" {
			one := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: spec.StringOrArray{s.Type}}}
			out = append(out, validation.GetUnrecognizedFormats(one, environment.DefaultCompatibilityVersion())...)
		}
		n := node{schema: s}
		for _, c := range n.children() {
			visit(c.schema)
		}
	}
	if hasSchema(in.Spec.Validation) {
		visit(in.Spec.Validation.OpenAPIV3Schema)
	}
	for i := range in.Spec.Versions {
		if v := in.Spec.Versions[i].Schema; hasSchema(v) {
			visit(v.OpenAPIV3Schema)
		}
	}
	return out
}
