package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/scheme"
)

const (
	gvkExtension = "x-kubernetes-group-version-kind"
	v2Prefix     = "#/definitions/"
	v3Prefix     = "#/components/schemas/"
)

// types are the schemas by model name, with references in v2's form.
type types struct {
	schemas map[string]spec.Schema
	gvks    map[string][]schema.GroupVersionKind
}

func loadTypes(s *scheme.Scheme) (*types, error) {
	data, err := runGenerator()
	if err != nil {
		return nil, err
	}
	var definitions map[string]struct{ Schema spec.Schema }
	if err := json.Unmarshal(data, &definitions); err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	t := &types{schemas: map[string]spec.Schema{}, gvks: servedGVKs(s)}
	for name, d := range definitions {
		t.schemas[name] = d.Schema
	}
	return t, nil
}

// modelName is a Go type's name in the documents.
func modelName(obj any) string {
	if m, ok := reflect.Indirect(reflect.ValueOf(obj)).Interface().(interface{ OpenAPIModelName() string }); ok {
		return m.OpenAPIModelName()
	}
	return ""
}

// servedGVKs are the kinds of the groups we serve, by model name. Some types
// (DeleteOptions, WatchEvent) are a kind of every group.
func servedGVKs(s *scheme.Scheme) map[string][]schema.GroupVersionKind {
	served := map[schema.GroupVersion]bool{}
	for _, k := range kinds(s) {
		served[k.GroupVersion()] = true
		for _, sub := range k.Subresources {
			served[sub.GVK.GroupVersion()] = true
		}
	}
	out := map[string][]schema.GroupVersionKind{}
	for gvk := range s.AllKnownTypes() {
		if !served[gvk.GroupVersion()] {
			continue
		}
		obj, err := s.New(gvk)
		if err != nil {
			continue // a type of the scheme's own, which has no schema
		}
		if name := modelName(obj); name != "" {
			out[name] = append(out[name], gvk)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	}
	return out
}

func gvkValue(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// named is the schema with the kinds it is the schema of.
func (t *types) named(name string) spec.Schema {
	out := t.schemas[name]
	var values []any
	for _, gvk := range t.gvks[name] {
		values = append(values, gvkValue(gvk))
	}
	if values != nil {
		extensions := spec.Extensions{gvkExtension: values}
		for key, value := range out.Extensions {
			extensions[key] = value
		}
		out.Extensions = extensions
	}
	return out
}

// v2 is the schema as swagger has it: no default of a reference, and the
// simpler form of what may be number or string.
func (t *types) v2(name string) spec.Schema {
	out := t.named(name)
	if simple, ok := out.Extensions[common.ExtensionV2Schema]; ok {
		data, err := json.Marshal(simple)
		if err == nil {
			var s spec.Schema
			if json.Unmarshal(data, &s) == nil {
				return s
			}
		}
	}
	walker := schemamutation.Walker{
		RefCallback: schemamutation.RefCallbackNoop,
		SchemaCallback: func(s *spec.Schema) *spec.Schema {
			if s.Default == nil {
				return s
			}
			plain := *s
			plain.Default = nil
			return &plain
		},
	}
	return *walker.WalkSchema(&out)
}

func (t *types) v3(name string) *spec.Schema {
	out := t.named(name)
	if _, ok := out.Extensions[common.ExtensionV2Schema]; ok {
		extensions := spec.Extensions{}
		for key, value := range out.Extensions {
			if key != common.ExtensionV2Schema {
				extensions[key] = value
			}
		}
		out.Extensions = extensions
	}
	walker := schemamutation.Walker{
		SchemaCallback: schemamutation.SchemaCallBackNoop,
		RefCallback: func(ref *spec.Ref) *spec.Ref {
			if name, ok := strings.CutPrefix(ref.String(), v2Prefix); ok {
				moved := spec.MustCreateRef(v3Prefix + name)
				return &moved
			}
			return ref
		},
	}
	return util.WrapRefs(walker.WalkSchema(&out))
}

// reachable are the names of the schemas that a document leads to.
func (t *types) reachable(doc *spec.Swagger) map[string]bool {
	seen := map[string]bool{}
	var visit func(name string)
	walker := schemamutation.Walker{
		SchemaCallback: schemamutation.SchemaCallBackNoop,
		RefCallback: func(ref *spec.Ref) *spec.Ref {
			if name, ok := strings.CutPrefix(ref.String(), v2Prefix); ok {
				visit(name)
			}
			return ref
		},
	}
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		s := t.schemas[name]
		walker.WalkSchema(&s)
	}
	walker.WalkRoot(doc)
	return seen
}
