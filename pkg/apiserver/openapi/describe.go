package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/apiserver/openapi/paths"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// tree is a JSON document or a part of one.
type tree map[string]any

// additions are the paths and schemas of the kinds without a Go type of one group.
type additions struct {
	v2 tree
	v3 map[string]tree // by path
}

// core returns the OpenAPI v3 document of "api/v1", which has the schemas of object
// metadata. base returns documents by path.
func core(base func(path string) []byte) (tree, error) {
	out := tree{}
	if err := json.Unmarshal(base("api/v1"), &out); err != nil {
		return nil, fmt.Errorf("read the types of metadata: %w", err)
	}
	return out, nil
}

// describe generates the documents of the kinds of a group, which have no Go type.
func describe(s *scheme.Scheme, kinds []*registry.Kind, core tree) (additions, error) {
	out := additions{v2: tree{"paths": tree{}, "definitions": tree{}}, v3: map[string]tree{}}
	v2, v3 := map[string]tree{}, map[string]tree{} // schemas by path
	for _, k := range kinds {
		for _, v := range k.Served() {
			path := groupPath(v.Kind)
			if v3[path] == nil {
				v2[path], v3[path] = tree{}, tree{}
			}
			v2[path][paths.KindModel(v.Kind)], v3[path][paths.KindModel(v.Kind)] = schemaV2(v), objectSchema(v, v.Schema, paths.V3Prefix)
			v2[path][paths.ListModel(v.Kind)], v3[path][paths.ListModel(v.Kind)] = listSchema(v, paths.V2Prefix), listSchema(v, paths.V3Prefix)
		}
	}
	for path, doc := range paths.Documents(s, kinds) {
		all, err := plain(openapiconv.ConvertV2ToV3(doc))
		if err != nil {
			return out, err
		}
		own, err := plain(v3[path])
		if err != nil {
			return out, err
		}
		if err := complete(all, own, core); err != nil {
			return out, err
		}
		all["components"] = map[string]any{"schemas": map[string]any(own), "securitySchemes": all.at("components")["securitySchemes"]}
		out.v3[path] = all
		swagger, err := plain(doc)
		if err != nil {
			return out, err
		}
		definitions, err := plain(v2[path])
		if err != nil {
			return out, err
		}
		maps.Copy(out.v2["paths"].(tree), swagger.at("paths"))
		maps.Copy(out.v2["definitions"].(tree), definitions)
	}
	return out, nil
}

func groupPath(k *scheme.Kind) string {
	if k.Group == "" {
		return "api/" + k.Version
	}
	return "apis/" + k.GroupVersion().String()
}

// plain converts a value to the maps and lists of its JSON.
func plain(v any) (tree, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := tree{}
	return out, json.Unmarshal(text, &out)
}

func (t tree) at(key string) tree {
	inner, _ := t[key].(map[string]any)
	return inner
}

// onto returns the document base, which may be empty, with the paths and schemas of
// t added. Both must be of the same OpenAPI version.
func (t tree) onto(base []byte) []byte {
	all := tree{}
	if json.Unmarshal(base, &all) != nil || len(all) == 0 {
		all = maps.Clone(t)
	}
	for _, key := range []string{"paths", "definitions"} {
		if added, ok := t[key].(tree); ok {
			maps.Copy(all.at(key), added)
		} else if added := t.at(key); added != nil {
			maps.Copy(all.at(key), added)
		}
	}
	if added := t.at("components").at("schemas"); added != nil {
		maps.Copy(all.at("components").at("schemas"), added)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return base // unreachable: all was parsed from JSON
	}
	return text
}

// complete copies the schemas of core that doc and own refer to into own.
func complete(doc, own, core tree) error {
	known := core.at("components").at("schemas")
	for todo := []any{doc, own}; len(todo) > 0; todo = todo[1:] {
		text, err := json.Marshal(todo[0])
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`"`+paths.V3Prefix+`([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			if own[m[1]] == nil && known[m[1]] != nil {
				own[m[1]] = known[m[1]]
				todo = append(todo, known[m[1]])
			}
		}
	}
	return nil
}

const metaModel = "io.k8s.apimachinery.pkg.apis.meta.v1."

// objectSchema returns a schema of a version with type and object metadata added. If
// own is nil, the objects may have any fields.
func objectSchema(v *registry.Version, own *spec.Schema, refs string) *spec.Schema {
	out := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
	out.Extensions = spec.Extensions{"x-kubernetes-preserve-unknown-fields": true}
	if own != nil {
		*out = *own
		out.Extensions = spec.Extensions{}
		maps.Copy(out.Extensions, own.Extensions)
	}
	out.Properties = maps.Clone(out.Properties)
	withType(out, v.GroupVersionKind)
	out.Properties["metadata"] = *spec.RefSchema(refs + metaModel + "ObjectMeta").WithDescription(metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"])
	return out
}

// schemaV2 returns the schema of a version for OpenAPI v2. If it has no properties, it
// has no metadata either: kubectl would reject all other fields.
func schemaV2(v *registry.Version) *spec.Schema {
	own := v.SchemaV2
	if own == nil {
		own = v.Schema
	}
	if own == nil || len(own.Properties) > 0 {
		return objectSchema(v, own, paths.V2Prefix)
	}
	out := *own
	out.Extensions = spec.Extensions{paths.GVKExtension: []any{paths.GVKValue(v.GroupVersionKind)}}
	return &out
}

func listSchema(v *registry.Version, refs string) *spec.Schema {
	out := &spec.Schema{SchemaProps: spec.SchemaProps{
		Type: spec.StringOrArray{"object"}, Required: []string{"items"}, Description: v.ListGVK().Kind + " is a list of " + v.GroupVersionKind.Kind,
	}}
	withType(out, v.ListGVK())
	out.Properties["metadata"] = *spec.RefSchema(refs + metaModel + "ListMeta").WithDescription(metav1.PartialObjectMetadataList{}.SwaggerDoc()["metadata"])
	out.Properties["items"] = *spec.ArrayProperty(spec.RefSchema(refs + paths.KindModel(v.Kind))).
		WithDescription("List of " + v.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md")
	return out
}

// withType adds type metadata to a schema, and the extension that names its kind.
func withType(s *spec.Schema, gvk schema.GroupVersionKind) {
	if s.Properties == nil {
		s.Properties = map[string]spec.Schema{}
	}
	if s.Extensions == nil {
		s.Extensions = spec.Extensions{}
	}
	for name, text := range (metav1.TypeMeta{}).SwaggerDoc() {
		if name != "" {
			s.Properties[name] = *spec.StringProperty().WithDescription(text)
		}
	}
	s.Extensions[paths.GVKExtension] = []any{paths.GVKValue(gvk)}
}
