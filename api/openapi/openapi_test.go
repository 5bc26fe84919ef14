package openapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/api/openapi"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

func kinds(s *scheme.Scheme) []*registry.Kind {
	stream := func(registry.Backend, string, string, string) http.Handler { return nil }
	return registry.Kinds(s, registry.Config{Streams: registry.Streams{
		PodLog: stream, PodExec: stream, PodAttach: stream, PodPortForward: stream, PodProxy: stream,
		NodeProxy: stream, ServiceProxy: stream}})
}

func v3(t *testing.T, gv schema.GroupVersion) *spec3.OpenAPI {
	t.Helper()
	path := "apis/" + gv.String()
	if gv.Group == "" {
		path = "api/" + gv.Version
	}
	doc := &spec3.OpenAPI{}
	if err := json.Unmarshal(openapi.V3(path), doc); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return doc
}

// perVersion returns f with its results kept: documents are large.
func perVersion[T any](f func(schema.GroupVersion) T) func(schema.GroupVersion) T {
	known := map[schema.GroupVersion]T{}
	return func(gv schema.GroupVersion) T {
		if _, ok := known[gv]; !ok {
			known[gv] = f(gv)
		}
		return known[gv]
	}
}

// Every served kind has a schema that carries its name, and paths; that is
// what kubectl looks for. When this fails, run `make generate`.
func TestEveryKindIsPublished(t *testing.T) {
	s := scheme.New()
	swagger := &spec.Swagger{}
	if err := json.Unmarshal(openapi.V2(), swagger); err != nil {
		t.Fatal(err)
	}
	docs := perVersion(func(gv schema.GroupVersion) *spec3.OpenAPI { return v3(t, gv) })
	for _, k := range kinds(s) {
		doc := docs(k.GroupVersion())
		name := k.New().(interface{ OpenAPIModelName() string }).OpenAPIModelName()
		for where, extensions := range map[string]spec.Extensions{
			"v3": doc.Components.Schemas[name].Extensions,
			"v2": swagger.Definitions[name].Extensions,
		} {
			if !names(extensions, k.GroupVersionKind) {
				t.Errorf("%s: the schema of %v is not marked with its kind: %v", where, k.GroupVersionKind, extensions)
			}
		}
		path := "/apis/" + k.GroupVersion().String()
		if k.Group == "" {
			path = "/api/v1"
		}
		if k.Namespaced {
			path += "/namespaces/{namespace}"
		}
		path += "/" + k.Resource
		if k.Computed {
			if item := doc.Paths.Paths[path]; item == nil || item.Get == nil || item.Post != nil || swagger.Paths.Paths[path+"/{name}"].Get == nil {
				t.Errorf("%s has not GET alone", path)
			}
			continue
		}
		if !k.Stored() {
			if item := doc.Paths.Paths[path]; item == nil || item.Post == nil || item.Get != nil || swagger.Paths.Paths[path].Post == nil {
				t.Errorf("%s has not POST alone", path)
			}
			continue
		}
		path += "/{name}"
		item := doc.Paths.Paths[path]
		if item == nil || item.Patch == nil {
			t.Fatalf("no PATCH %s", path)
		}
		if !accepts(item.Patch.Parameters, "dryRun") || !accepts(item.Patch.Parameters, "fieldValidation") {
			t.Errorf("PATCH %s: kubectl looks here for dryRun and fieldValidation", path)
		}
		if swagger.Paths.Paths[path].Patch == nil {
			t.Errorf("v2: no PATCH %s", path)
		}
		for _, sub := range k.Subresources {
			if doc.Paths.Paths[path+"/"+sub.Name] == nil {
				t.Errorf("no %s/%s", path, sub.Name)
			}
		}
	}
}

func names(extensions spec.Extensions, want schema.GroupVersionKind) bool {
	list, _ := extensions["x-kubernetes-group-version-kind"].([]any)
	for _, item := range list {
		m, _ := item.(map[string]any)
		if m["group"] == want.Group && m["version"] == want.Version && m["kind"] == want.Kind {
			return true
		}
	}
	return false
}

func accepts(parameters []*spec3.Parameter, name string) bool {
	for _, p := range parameters {
		if p.Name == name {
			return true
		}
	}
	return false
}

// Server-side apply converts objects by these schemas.
func TestTypeConverterTakesEveryKind(t *testing.T) {
	s := scheme.New()
	converters := perVersion(func(gv schema.GroupVersion) managedfields.TypeConverter {
		converter, err := managedfields.NewTypeConverter(v3(t, gv).Components.Schemas, false)
		if err != nil {
			t.Fatalf("%v: %v", gv, err)
		}
		return converter
	})
	for _, k := range kinds(s) {
		converter := converters(k.GroupVersion())
		obj := k.New()
		obj.SetName("x")
		obj.SetLabels(map[string]string{"a": "b"})
		obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		if _, err := converter.ObjectToTyped(obj); err != nil {
			t.Errorf("%v: %v", k.GroupVersionKind, err)
		}
	}
}

// The lists that two appliers can share are maps by key, not atoms.
func TestListsHaveTheirKeys(t *testing.T) {
	doc := v3(t, corev1.SchemeGroupVersion)
	for _, row := range []struct{ model, field, listType, key, mergeKey string }{
		{"io.k8s.api.core.v1.PodSpec", "containers", "map", "name", "name"},
		{"io.k8s.api.core.v1.PodSpec", "volumes", "map", "name", "name"},
		{"io.k8s.api.core.v1.Container", "ports", "map", "containerPort", "containerPort"},
		{"io.k8s.api.core.v1.ServiceSpec", "ports", "map", "port", "port"},
		{"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences", "map", "uid", "uid"},
	} {
		extensions := doc.Components.Schemas[row.model].Properties[row.field].Extensions
		keys, _ := extensions["x-kubernetes-list-map-keys"].([]any)
		if extensions["x-kubernetes-list-type"] != row.listType || len(keys) == 0 || keys[0] != row.key || extensions["x-kubernetes-patch-merge-key"] != row.mergeKey {
			t.Errorf("%s.%s: %v", row.model, row.field, extensions)
		}
	}
}

func TestDocumentsAreWhole(t *testing.T) {
	for _, path := range openapi.Paths() {
		text := string(openapi.V3(path))
		doc := &spec3.OpenAPI{}
		if err := json.Unmarshal([]byte(text), doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, part := range strings.Split(text, `"#/components/schemas/`)[1:] {
			name, _, _ := strings.Cut(part, `"`)
			if doc.Components.Schemas[name] == nil {
				t.Errorf("%s: %s is referred to and missing", path, name)
			}
		}
	}
	if openapi.V3("apis/nobody/v1") != nil {
		t.Error("a document for a group that does not exist")
	}
	status := &metav1.Status{}
	if json.Unmarshal(openapi.V2(), status) != nil {
		t.Error("v2 is not JSON")
	}
}
