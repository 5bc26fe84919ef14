package definition

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// walk validates a schema and all schemas within it.
type walk struct {
	errs  field.ErrorList // of schemas
	rules field.ErrorList // of x-kubernetes-validations
	costs costs
}

// node is a schema, with what its ancestors say about it.
type node struct {
	schema     *apiextensions.JSONSchemaProps
	structural *structuralschema.Structural // nil: rules are not compiled
	path       *field.Path
	root       bool        // the schema of the whole object
	meta       bool        // inside of type or object metadata
	noDefaults string      // why there may be no default; "": there may
	unrelated  *field.Path // the highest ancestor whose parts do not correspond to those of the previous object; may be nil
	times      uint64      // how often the value can occur in an object; unlimited: no bound
}

const unlimited = math.MaxUint64

// visit validates a schema and those within it. Rules are compiled only if the
// schema and all below it are valid, because their types are unknown otherwise.
func (w *walk) visit(n node) {
	before := len(w.errs)
	w.errs = append(w.errs, n.standard()...)
	for _, c := range n.children() {
		w.visit(n.below(c))
	}
	w.errs = append(w.errs, n.extensions()...)
	w.errs = append(w.errs, n.listType()...)
	w.errs = append(w.errs, n.ruleTexts()...)
	if len(w.errs) == before && n.structural != nil && len(n.schema.XValidations) > 0 {
		w.compile(n)
	}
}

// below returns the node of a schema within n.
func (n *node) below(c child) node {
	out := node{
		schema: c.schema, structural: c.structural, path: c.path,
		meta: n.meta, noDefaults: n.noDefaults, unrelated: n.unrelated, times: multiply(n.times, n.elements()),
	}
	if !n.correlates(c) && out.unrelated == nil {
		out.unrelated = n.path
	}
	if c.sort == value && n.meta {
		out.noDefaults = "inside additionalProperties applying to object metadata"
	}
	if c.sort == property && (n.root || n.schema.XEmbeddedResource) && slices.Contains([]string{"metadata", "kind", "apiVersion"}, c.name) {
		out.meta = true
		if n.root {
			out.noDefaults = "in top-level " + c.name
		}
	}
	return out
}

// elements returns how many elements a value of n has at most.
func (n *node) elements() uint64 {
	limit, bounded := n.schema.MaxItems, n.schema.Type == "array"
	if n.schema.Type == "object" && n.schema.AdditionalProperties != nil {
		limit, bounded = n.schema.MaxProperties, true
	}
	switch {
	case !bounded:
		return 1
	case limit == nil:
		return unlimited
	}
	return uint64(max(*limit, 0))
}

// multiply returns a product, or unlimited if it overflows.
func multiply(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	if a == unlimited || b == unlimited || unlimited/a < b {
		return unlimited
	}
	return a * b
}

// standard validates what OpenAPI defines and Kubernetes restricts.
func (n *node) standard() (errs field.ErrorList) {
	s := n.schema
	types := []string{"array", "boolean", "integer", "number", "object", "string"}
	if s.Type != "" && !slices.Contains(types, s.Type) {
		errs = append(errs, field.NotSupported(n.path.Child("type"), s.Type, types))
	}
	if s.Default != nil && n.noDefaults != "" {
		errs = append(errs, field.Forbidden(n.path.Child("default"), "must not be set "+n.noDefaults))
	}
	for _, f := range []struct {
		set          bool
		name, detail string
	}{
		{s.ID != "", "id", "id is not supported"},
		{s.AdditionalItems != nil, "additionalItems", "additionalItems is not supported"},
		{len(s.PatternProperties) > 0, "patternProperties", "patternProperties is not supported"},
		{len(s.Definitions) > 0, "definitions", "definitions is not supported"},
		{s.Dependencies != nil, "dependencies", "dependencies is not supported"},
		{s.Ref != nil, "$ref", "$ref is not supported"},
		{s.Type == "null", "type", "type cannot be set to null, use nullable as an alternative"},
		{s.Items != nil && len(s.Items.JSONSchemas) > 0, "items", "items must be a schema object and not an array"},
		{n.meta && s.XEmbeddedResource, "x-kubernetes-embedded-resource", "must not be used inside of resource meta"},
		{s.UniqueItems, "uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"},
		{excludesOthers(s), "additionalProperties", "additionalProperties and properties are mutual exclusive"},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(n.path.Child(f.name), f.detail))
		}
	}
	return errs
}

// excludesOthers reports whether a schema restricts the properties that it does not
// name, although it names some.
func excludesOthers(s *apiextensions.JSONSchemaProps) bool {
	extra := s.AdditionalProperties
	return extra != nil && len(s.Properties) > 0 && (!extra.Allows || extra.Schema != nil)
}

// extensions validates the extensions of maps and of unknown fields.
func (n *node) extensions() (errs field.ErrorList) {
	s := n.schema
	if keep := s.XPreserveUnknownFields; keep != nil && !*keep {
		errs = append(errs, field.Invalid(n.path.Child("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined"))
	}
	if s.XMapType == nil {
		return errs
	}
	errs = append(errs, n.needsType("object", "x-kubernetes-map-type")...)
	return append(errs, oneOf(n.path.Child("x-kubernetes-map-type"), *s.XMapType, "atomic", "granular")...)
}

// needsType returns an error unless n has the type that an extension requires.
func (n *node) needsType(want, extension string) field.ErrorList {
	detail := fmt.Sprintf("must be %s if %s is specified", want, extension)
	switch n.schema.Type {
	case want:
		return nil
	case "":
		return field.ErrorList{field.Required(n.path.Child("type"), detail)}
	}
	return field.ErrorList{field.Invalid(n.path.Child("type"), n.schema.Type, detail)}
}

// listType validates the extensions of lists.
func (n *node) listType() (errs field.ErrorList) {
	s := n.schema
	path := n.path.Child("x-kubernetes-list-type")
	if s.XListType == nil {
		if len(s.XListMapKeys) > 0 {
			errs = append(errs, field.Required(path, "must be map if x-kubernetes-list-map-keys is non-empty"))
		}
		return errs
	}
	errs = append(errs, n.needsType("array", "x-kubernetes-list-type")...)
	errs = append(errs, oneOf(path, *s.XListType, "atomic", "set", "map")...)
	if len(s.XListMapKeys) > 0 && *s.XListType != "map" {
		errs = append(errs, field.Invalid(path, *s.XListType, "must be map if x-kubernetes-list-map-keys is non-empty"))
	}
	var items *apiextensions.JSONSchemaProps
	if s.Items != nil {
		items = s.Items.Schema
	}
	in := n.path.Child("items")
	if items != nil && items.Nullable && (*s.XListType == "set" || *s.XListType == "map") {
		errs = append(errs, field.Forbidden(in.Child("nullable"), "cannot be nullable when x-kubernetes-list-type is "+*s.XListType))
	}
	switch {
	case *s.XListType == "set" && items != nil:
		errs = append(errs, atomicItems(items, in)...)
	case *s.XListType == "map":
		errs = append(errs, n.mapKeys(items, in)...)
	}
	return errs
}

// atomicItems validates the items of a set.
func atomicItems(items *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	const detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
	switch {
	case items.Type == "array" && items.XListType != nil && *items.XListType != "atomic":
		return field.ErrorList{field.Invalid(path.Child("x-kubernetes-list-type"), items.XListType, detail)}
	case items.Type == "object" && (items.XMapType == nil || *items.XMapType != "atomic"):
		return field.ErrorList{field.Invalid(path.Child("x-kubernetes-map-type"), items.XMapType, detail)}
	}
	return nil
}

// mapKeys validates the keys and the items of a list that is a map.
func (n *node) mapKeys(items *apiextensions.JSONSchemaProps, path *field.Path) (errs field.ErrorList) {
	keys, keyPath := n.schema.XListMapKeys, n.path.Child("x-kubernetes-list-map-keys")
	if len(keys) == 0 {
		errs = append(errs, field.Required(keyPath, "must not be empty if x-kubernetes-list-type is map"))
	}
	if items == nil {
		return append(errs, field.Required(path, "must have a schema if x-kubernetes-list-type is map"))
	}
	if items.Type != "object" {
		return append(errs, field.Invalid(path.Child("type"), items.Type, "must be object if parent array's x-kubernetes-list-type is map"))
	}
	for i, key := range keys {
		if slices.Contains(keys[:i], key) {
			errs = append(errs, field.Invalid(keyPath, keys, "must not contain duplicate entries"))
		}
		p, ok := items.Properties[key]
		if !ok {
			errs = append(errs, field.Invalid(keyPath, keys, "entries must all be names of item properties"))
			continue
		}
		path := path.Child("properties").Key(key)
		if p.Type == "array" || p.Type == "object" {
			errs = append(errs, field.Invalid(path.Child("type"), items.Type, "must be a scalar type if parent array's x-kubernetes-list-type is map"))
		}
		if !slices.Contains(items.Required, key) && p.Default == nil {
			errs = append(errs, field.Required(path.Child("default"), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"))
		}
		if p.Nullable {
			errs = append(errs, field.Forbidden(path.Child("nullable"), "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"))
		}
	}
	return errs
}
