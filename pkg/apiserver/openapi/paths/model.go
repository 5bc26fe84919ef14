package paths

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/scheme"
)

const (
	// GVKExtension is the extension that lists the kinds of a schema.
	GVKExtension = "x-kubernetes-group-version-kind"

	// V2Prefix and V3Prefix are the prefixes of references to schemas.
	V2Prefix = "#/definitions/"
	V3Prefix = "#/components/schemas/"
)

// GVKValue returns an entry of GVKExtension.
func GVKValue(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// ModelName returns the name of a Go type in the documents, or "" if the type has
// no name.
func ModelName(obj any) string {
	if m, ok := reflect.Indirect(reflect.ValueOf(obj)).Interface().(interface{ OpenAPIModelName() string }); ok {
		return m.OpenAPIModelName()
	}
	return ""
}

// KindModel returns the name of a kind in the documents. For a kind without a Go
// type, it is the reversed group, the version and the kind.
func KindModel(k *scheme.Kind) string {
	if !k.IsUntyped() {
		return ModelName(k.New())
	}
	parts := strings.Split(k.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, k.Version, k.Kind), ".")
}

// ListModel returns the name of the list of a kind in the documents.
func ListModel(k *scheme.Kind) string {
	if !k.IsUntyped() {
		return ModelName(k.NewList())
	}
	list := *k
	list.GroupVersionKind = k.ListGVK()
	return KindModel(&list)
}

// Swagger returns a new document without paths.
func Swagger() *spec.Swagger {
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0",
		Info:    &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: "unversioned"}},
		Paths:   &spec.Paths{Paths: map[string]spec.PathItem{}},
		SecurityDefinitions: spec.SecurityDefinitions{
			"BearerToken": {SecuritySchemeProps: spec.SecuritySchemeProps{
				Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication"}},
		},
		Security: []map[string][]string{{"BearerToken": {}}},
	}}
}
