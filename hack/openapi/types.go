package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/apiserver/openapi/paths"
	"podium/pkg/scheme"
)

// types holds the schemas by model name, with references in the form of version
// 2.
type types struct {
	schemas map[string]spec.Schema
	gvks    map[string][]schema.GroupVersionKind
}

// loadTypes runs the generator and returns the schemas.
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

// servedGVKs returns the kinds of the served groups by model name. Some types
// (DeleteOptions, WatchEvent) are a kind of every group.
func servedGVKs(s *scheme.Scheme) map[string][]schema.GroupVersionKind {
	served := map[schema.GroupVersion]bool{}
	for _, k := range kinds(s) {
		for _, v := range k.Served() {
			served[v.GroupVersion()] = true
		}
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
		if name := paths.ModelName(obj); name != "" {
			out[name] = append(out[name], gvk)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	}
	return out
}

// named returns a schema with the kinds that it describes.
func (t *types) named(name string) spec.Schema {
	out := t.schemas[name]
	var values []any
	for _, gvk := range t.gvks[name] {
		values = append(values, paths.GVKValue(gvk))
	}
	if values != nil {
		extensions := spec.Extensions{paths.GVKExtension: values}
		for key, value := range out.Extensions {
			extensions[key] = value
		}
		out.Extensions = extensions
	}
	return out
}

// v2 returns a schema for version 2: references have no default, and fields
// that accept a number or a string have the simpler form.
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

// v3 returns a schema for version 3, with references in its form.
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
			if name, ok := strings.CutPrefix(ref.String(), paths.V2Prefix); ok {
				moved := spec.MustCreateRef(paths.V3Prefix + name)
				return &moved
			}
			return ref
		},
	}
	return util.WrapRefs(walker.WalkSchema(&out))
}

// reachable returns the names of the schemas that a document refers to,
// directly or not.
func (t *types) reachable(doc *spec.Swagger) map[string]bool {
	seen := map[string]bool{}
	var visit func(name string)
	walker := schemamutation.Walker{
		SchemaCallback: schemamutation.SchemaCallBackNoop,
		RefCallback: func(ref *spec.Ref) *spec.Ref {
			if name, ok := strings.CutPrefix(ref.String(), paths.V2Prefix); ok {
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
