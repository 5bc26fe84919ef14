package managed

import (
	"encoding/json"
	"fmt"
	"path"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// shape says how the values of one type are divided into fields that have owners. A
// value may be a scalar, a list or an object; most types allow only one of these. A
// shape is immutable.
type shape struct {
	scalar bool
	list   *listShape
	object *objectShape
}

// listShape is a list. An atomic list has one owner. The items of others are
// identified by their keys or, without keys, by their values.
type listShape struct {
	atomic bool
	keys   []listKey
	item   *shape
}

type listKey struct {
	name     string
	fallback any // of an item without the key; nil: none
}

// objectShape is an object or a map. An atomic one has one owner.
type objectShape struct {
	atomic bool
	fields map[string]*shape
	other  *shape // of fields that are not in fields; nil: there are none

	plan atomic.Pointer[plan] // of the Go type whose values were last seen
}

// known returns the shape of a field, or nil if the schema does not have it.
func (o *objectShape) known(name string) *shape {
	if s := o.fields[name]; s != nil {
		return s
	}
	return o.other
}

// field is known, but an unknown field has one owner.
func (o *objectShape) field(name string) *shape {
	if s := o.known(name); s != nil {
		return s
	}
	return untyped
}

// The shapes of values without a schema: atomic below one field, or deduced from the
// values, where objects have fields and lists are atomic.
var (
	untyped = &shape{scalar: true, list: &listShape{atomic: true}, object: &objectShape{atomic: true}}
	deduced = deducedShape()
)

func deducedShape() *shape {
	s := &shape{scalar: true, list: &listShape{atomic: true}, object: &objectShape{}}
	s.object.other = s
	return s
}

// Schemas are the shapes of the kinds in OpenAPI documents.
type Schemas map[schema.GroupVersionKind]*shape

// Read adds the kinds of an OpenAPI v3 document. Calls must not overlap.
func (s Schemas) Read(document []byte) error {
	var doc struct {
		Components struct {
			Schemas map[string]*definition
		}
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return fmt.Errorf("read an OpenAPI document: %w", err)
	}
	r := newReader(doc.Components.Schemas)
	for name, d := range r.definitions {
		for _, k := range d.Kinds {
			s[schema.GroupVersionKind(k)] = r.named(name)
		}
	}
	return nil
}

// TypeOf returns the type of a kind without a Go type, from its schema. If the schema
// is nil, objects have fields, and lists have one manager.
func TypeOf(s *spec.Schema) (*Type, error) {
	if s == nil {
		return &Type{root: deduced}, nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("read a schema: %w", err)
	}
	var d definition
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read a schema: %w", err)
	}
	r := newReader(nil)
	root := shape{object: r.object(&d, d.Unknown)}
	if root.object.fields == nil {
		root.object.fields = map[string]*shape{}
	}
	root.object.fields["metadata"] = objectMeta
	return &Type{root: &root}, nil
}

// plainValue is a number, a text or a truth value.
var plainValue = &shape{scalar: true}

// objectMeta is the metadata of an object. Fields that are not named are scalars.
var objectMeta = &shape{object: &objectShape{other: plainValue, fields: map[string]*shape{
	"labels":          {object: &objectShape{other: plainValue}},
	"annotations":     {object: &objectShape{other: plainValue}},
	"finalizers":      {list: &listShape{item: plainValue}},
	"ownerReferences": {list: &listShape{keys: []listKey{{name: "uid"}}, item: untyped}},
}}}

// definition is what ownership depends on in a schema.
type definition struct {
	Ref        string                 `json:"$ref"`
	AllOf      []definition           `json:"allOf"`
	Type       string                 `json:"type"`
	Properties map[string]*definition `json:"properties"`
	Additional *additional            `json:"additionalProperties"`
	Items      *definition            `json:"items"`
	Default    any                    `json:"default"`
	Unknown    bool                   `json:"x-kubernetes-preserve-unknown-fields"`
	MapType    string                 `json:"x-kubernetes-map-type"`
	ListType   string                 `json:"x-kubernetes-list-type"`
	Keys       []string               `json:"x-kubernetes-list-map-keys"`
	Strategy   string                 `json:"x-kubernetes-patch-strategy"`
	MergeKey   string                 `json:"x-kubernetes-patch-merge-key"`
	Kinds      []kind                 `json:"x-kubernetes-group-version-kind"`
}

type kind struct{ Group, Version, Kind string }

// additional is a schema or a boolean.
type additional struct {
	allowed bool
	schema  *definition
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &a.allowed) == nil {
		return nil
	}
	return json.Unmarshal(text, &a.schema)
}

// reader turns definitions into shapes.
type reader struct {
	definitions map[string]*definition
	shapes      map[string]*shape // of the definitions read so far, by name
}

func newReader(definitions map[string]*definition) *reader {
	return &reader{definitions, map[string]*shape{
		"io.k8s.apimachinery.pkg.api.resource.Quantity":   {scalar: true},
		"io.k8s.apimachinery.pkg.runtime.RawExtension":    untyped,
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": objectMeta,
	}}
}

// named returns the shape of a definition, which may refer to itself.
func (r *reader) named(name string) *shape {
	if s := r.shapes[name]; s != nil {
		return s
	}
	d := r.definitions[name]
	if d == nil {
		return untyped
	}
	s := &shape{}
	r.shapes[name] = s
	*s = r.read(d, d.Unknown)
	return s
}

// ref returns the shape of a field, an item or a value of a map. unknown means that
// the objects around it keep unknown fields.
func (r *reader) ref(d *definition, unknown bool) *shape {
	ref := d.reference()
	if ref == "" {
		s := r.read(d, unknown || d.Unknown)
		return &s
	}
	s := r.named(path.Base(ref))
	if d.MapType == "" || s.object == nil || s.object.atomic == (d.MapType == "atomic") {
		return s
	}
	return &shape{scalar: s.scalar, list: s.list, object: &objectShape{atomic: d.MapType == "atomic", fields: s.object.fields, other: s.object.other}}
}

func (r *reader) read(d *definition, unknown bool) shape {
	switch d.Type {
	case "object":
		return shape{object: r.object(d, unknown)}
	case "array":
		return shape{list: r.list(d, unknown)}
	case "":
		return shape{scalar: true, list: r.list(d, unknown), object: r.object(d, unknown)}
	}
	return shape{scalar: true}
}

func (r *reader) object(d *definition, unknown bool) *objectShape {
	o := &objectShape{atomic: d.MapType == "atomic"}
	if len(d.Properties) > 0 {
		o.fields = make(map[string]*shape, len(d.Properties))
	}
	for name, p := range d.Properties {
		o.fields[name] = r.ref(p, unknown)
	}
	switch a := d.Additional; {
	case a == nil && (unknown || len(d.Properties) == 0), a != nil && a.allowed:
		o.other = deduced
	case a != nil && a.schema != nil:
		o.other = r.ref(a.schema, unknown)
	}
	return o
}

func (r *reader) list(d *definition, unknown bool) *listShape {
	l := &listShape{item: untyped}
	if d.Items != nil {
		l.item = r.ref(d.Items, unknown)
	}
	keys := d.Keys
	switch {
	case d.ListType == "map", d.ListType == "set":
	case d.ListType == "" && (d.Strategy == "merge" || d.Strategy == "merge,retainKeys"):
		if keys = nil; d.MergeKey != "" {
			keys = []string{d.MergeKey}
		}
	default:
		l.atomic = true
	}
	for _, name := range keys {
		l.keys = append(l.keys, listKey{name: name, fallback: r.fallback(d.Items, name)})
	}
	return l
}

// fallback returns the default of a field of an item; nil: none.
func (r *reader) fallback(item *definition, name string) any {
	if item == nil {
		return nil
	}
	if ref := item.reference(); ref != "" {
		item = r.definitions[path.Base(ref)]
	}
	if item == nil || item.Properties[name] == nil {
		return nil
	}
	return item.Properties[name].Default
}

// reference returns the reference in place of a schema, or "".
func (d *definition) reference() string {
	if d.Ref == "" && len(d.AllOf) == 1 {
		return d.AllOf[0].Ref
	}
	return d.Ref
}
