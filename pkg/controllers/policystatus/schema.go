package policystatus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/client"
)

// source reads from the API: a *client.Client.
type source interface {
	Do(context.Context, client.Request) ([]byte, http.Header, error)
}

// documents reads OpenAPI v3 documents, each once.
type documents struct {
	api  source
	read map[schema.GroupVersion]*document
}

// of returns the document of a group and version. It is empty if the version is not
// served.
func (d *documents) of(ctx context.Context, gv schema.GroupVersion) (*document, error) {
	if doc := d.read[gv]; doc != nil {
		return doc, nil
	}
	doc := &document{root: "/apis/" + gv.String()}
	if gv.Group == "" {
		doc.root = "/api/" + gv.Version
	}
	body, _, err := d.api.Do(ctx, client.Request{Path: "/openapi/v3" + doc.root})
	if err == nil {
		err = json.Unmarshal(body, doc)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the OpenAPI document of %s: %w", gv, err)
	}
	if d.read == nil {
		d.read = map[schema.GroupVersion]*document{}
	}
	d.read[gv] = doc
	return doc, nil
}

// document is the part of an OpenAPI v3 document that type checks need.
type document struct {
	root       string
	Paths      map[string]operations
	Components struct {
		Schemas map[string]*spec.Schema
	}
	resolved map[string]*spec.Schema // by name; nil: under way
}

type operations struct{ Get, Post operation }

type operation struct {
	Kind schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// kindOf returns the name of the kind of a resource, "" if the resource is not served.
func (d *document) kindOf(resource string) string {
	for _, path := range []string{d.root + "/" + resource, d.root + "/namespaces/{namespace}/" + resource} {
		for _, o := range []operation{d.Paths[path].Post, d.Paths[path].Get} {
			if o.Kind.Kind != "" {
				return o.Kind.Kind
			}
		}
	}
	return ""
}

const kindsExtension = "x-kubernetes-group-version-kind"

// typeOf returns the type of a kind, under a name; nil if there is no schema.
func (d *document) typeOf(k schema.GroupVersionKind, name string) *apicel.DeclType {
	for _, ref := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		var kinds []schema.GroupVersionKind
		if err := d.Components.Schemas[ref].Extensions.GetObject(kindsExtension, &kinds); err != nil || !slices.Contains(kinds, k) {
			continue
		}
		d.resolved = map[string]*spec.Schema{}
		if t := openapi.SchemaDeclType(d.named(ref), true); t != nil {
			return t.MaybeAssignTypeName(name)
		}
	}
	return nil
}

// dynamic returns a schema whose type in CEL is dynamic.
func dynamic() *spec.Schema {
	return &spec.Schema{SchemaProps: spec.SchemaProps{Format: "int-or-string"}}
}

// named returns a schema of the document without references. A schema that contains
// itself is dynamic inside.
func (d *document) named(name string) *spec.Schema {
	if s, known := d.resolved[name]; known && s != nil {
		return s
	} else if known || d.Components.Schemas[name] == nil {
		return dynamic()
	}
	d.resolved[name] = nil
	s := d.resolve(d.Components.Schemas[name])
	d.resolved[name] = s
	return s
}

// resolve returns a copy of a schema without references. What the schema does not
// describe is dynamic: CEL would otherwise know fewer fields than there are.
func (d *document) resolve(s *spec.Schema) *spec.Schema {
	if ref := refOf(s); ref != "" {
		return d.named(ref)
	}
	preserves, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	out := *s
	switch {
	case preserves:
		return dynamic()
	case s.Type.Contains("array") && s.Items != nil && s.Items.Schema != nil:
		out.Items = &spec.SchemaOrArray{Schema: d.resolve(s.Items.Schema)}
	case s.Type.Contains("object") && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: d.resolve(s.AdditionalProperties.Schema)}
	case s.Type.Contains("object") && len(s.Properties) > 0:
		out.Properties = make(map[string]spec.Schema, len(s.Properties))
		for name, p := range s.Properties {
			out.Properties[name] = *d.resolve(&p)
		}
	case len(s.Type) == 0, s.Type.Contains("array"), s.Type.Contains("object"):
		return dynamic()
	}
	return &out
}

// refOf returns the name of the schema to which s refers, "" if it refers to none.
func refOf(s *spec.Schema) string {
	ref := s.Ref.String()
	if ref == "" && len(s.AllOf) == 1 {
		ref = s.AllOf[0].Ref.String()
	}
	return ref[strings.LastIndexByte(ref, '/')+1:]
}
