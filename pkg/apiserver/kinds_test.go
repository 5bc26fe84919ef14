package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

const (
	group   = "/apis/stable.example.com/v1"
	widgets = group + "/namespaces/default/widgets"
)

// widgetKind returns a kind without a Go type that uses every kind of rule.
func widgetKind() *registry.Kind {
	k := scheme.Untyped(scheme.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "stable.example.com", Version: "v1", Kind: "Widget"},
		Resource:         "widgets", Singular: "widget", ShortNames: []string{"wd"}, Namespaced: true,
	})
	size := func(u *unstructured.Unstructured) int64 {
		n, _, _ := unstructured.NestedInt64(u.Object, "spec", "size")
		return n
	}
	object := func(properties map[string]spec.Schema) *spec.Schema {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}, Properties: properties}}
	}
	return registry.Of[*unstructured.Unstructured]{
		Schema: object(map[string]spec.Schema{"spec": *object(map[string]spec.Schema{
			"size": *spec.Int64Property(), "color": *spec.StringProperty(), "notes": *spec.MapProperty(spec.StringProperty()),
		})}),
		Default: func(u *unstructured.Unstructured) {
			if _, ok, _ := unstructured.NestedString(u.Object, "spec", "color"); !ok {
				_ = unstructured.SetNestedField(u.Object, "red", "spec", "color")
			}
		},
		Prune: func(u *unstructured.Unstructured) (problems []error) {
			spec, _ := u.Object["spec"].(map[string]any)
			if _, ok := spec["bogus"]; ok {
				delete(spec, "bogus")
				problems = append(problems, errors.New(`unknown field "spec.bogus"`))
			}
			return problems
		},
		Validate: func(new, _ *unstructured.Unstructured) field.ErrorList {
			if size(new) < 0 {
				return field.ErrorList{field.Invalid(field.NewPath("spec", "size"), size(new), "must not be negative")}
			}
			return nil
		},
		Columns: []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}, {Name: "Size", Type: "integer"}},
		Row:     func(u *unstructured.Unstructured, _ time.Time) []any { return []any{u.GetName(), size(u)} },
		Fields: func(u *unstructured.Unstructured) fields.Set {
			color, _, _ := unstructured.NestedString(u.Object, "spec", "color")
			return fields.Set{"spec.color": color}
		},
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func widget(name, spec string) string {
	return `{"apiVersion":"stable.example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","labels":{"l":"` + name + `"}},"spec":` + spec + `}`
}

func addWidgets(t *testing.T, w *world) {
	t.Helper()
	if err := w.server.AddKind(t.Context(), widgetKind()); err != nil {
		t.Fatal(err)
	}
}

func specOf(u *unstructured.Unstructured) string {
	text, _ := json.Marshal(u.Object["spec"])
	return string(text)
}

// Every verb and option works on a kind that was added while the server runs.
func TestKindAddedAtRunTime(t *testing.T) {
	w := start(t)
	must[metav1.Status](w, 404, "GET", widgets, "", "")
	addWidgets(t, w)
	if err := w.server.AddKind(t.Context(), widgetKind()); err == nil {
		t.Error("a kind was added twice")
	}
	type object = unstructured.Unstructured
	made := must[object](w, 201, "POST", widgets, jsonType, widget("a", `{"size":3}`))
	if made.GetUID() == "" || made.GetResourceVersion() == "" || specOf(made) != `{"color":"red","size":3}` || made.GetKind() != "Widget" {
		t.Errorf("created %v", made.Object)
	}
	must[object](w, 201, "POST", widgets, yamlType, "apiVersion: stable.example.com/v1\nkind: Widget\nmetadata: {name: b}\nspec: {size: 1, color: blue}\n")
	must[metav1.Status](w, 415, "POST", widgets, protoType, "k8s\x00")
	must[metav1.Status](w, 422, "POST", widgets, jsonType, widget("c", `{"size":-1}`))
	must[metav1.Status](w, 400, "POST", widgets, jsonType, `{"apiVersion":"stable.example.com/v1","kind":"Widget","metadata":{"name":"c","labels":5}}`)
	must[metav1.Status](w, 400, "POST", widgets, jsonType, `{"apiVersion":"stable.example.com/v1","kind":"Gadget","metadata":{"name":"c"}}`)
	must[object](w, 201, "POST", widgets+"?dryRun=All", jsonType, widget("c", `{}`))
	must[metav1.Status](w, 404, "GET", widgets+"/c", "", "")

	must[metav1.Status](w, 400, "POST", widgets+"?fieldValidation=Strict", jsonType, widget("c", `{"bogus":1}`))
	rec := w.do("POST", widgets+"?dryRun=All", jsonType, widget("c", `{"bogus":1}`))
	if warning := rec.Header().Get("Warning"); rec.Code != 201 || !strings.Contains(warning, "spec.bogus") || strings.Contains(rec.Body.String(), "bogus") {
		t.Errorf("an unknown field: %d, warning %q, %s", rec.Code, warning, rec.Body)
	}

	replaced := must[object](w, 200, "PUT", widgets+"/a", jsonType, widget("a", `{"size":4}`))
	if specOf(replaced) != `{"color":"red","size":4}` || replaced.GetUID() != made.GetUID() {
		t.Errorf("replaced %v", replaced.Object)
	}
	same := must[object](w, 200, "PATCH", widgets+"/a", mergeType, `{"spec":{"size":4}}`)
	if same.GetResourceVersion() != replaced.GetResourceVersion() {
		t.Error("a patch that changes nothing writes")
	}
	if got := must[object](w, 200, "PATCH", widgets+"/a", mergeType, `{"spec":{"size":5,"color":null}}`); specOf(got) != `{"color":"red","size":5}` {
		t.Errorf("merged %v", got.Object)
	}
	if got := must[object](w, 200, "PATCH", widgets+"/a", "application/json-patch+json", `[{"op":"replace","path":"/spec/size","value":6}]`); specOf(got) != `{"color":"red","size":6}` {
		t.Errorf("patched %v", got.Object)
	}
	must[metav1.Status](w, 415, "PATCH", widgets+"/a", "application/strategic-merge-patch+json", `{}`)

	list := must[unstructured.UnstructuredList](w, 200, "GET", widgets, "", "", "Accept", "application/vnd.kubernetes.protobuf,application/json")
	if len(list.Items) != 2 || list.Items[0].GetKind() != "Widget" || list.GetKind() != "WidgetList" {
		t.Errorf("list %v", list)
	}
	for query, want := range map[string]string{"fieldSelector=spec.color%3Dblue": "b", "labelSelector=l%3Da": "a", "fieldSelector=metadata.name%3Db": "b"} {
		got := must[unstructured.UnstructuredList](w, 200, "GET", group+"/widgets?"+query, "", "")
		if len(got.Items) != 1 || got.Items[0].GetName() != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	if rec := w.do("GET", widgets, "", "", "Accept", protoType); rec.Code != http.StatusNotAcceptable {
		t.Errorf("a list as protobuf: %d", rec.Code)
	}
	table := must[metav1.Table](w, 200, "GET", widgets, "", "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	if len(table.Rows) != 2 || table.Rows[0].Cells[1] != float64(6) {
		t.Errorf("table %+v", table)
	}
	meta := must[metav1.PartialObjectMetadataList](w, 200, "GET", widgets, "", "", "Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if len(meta.Items) != 2 || meta.Items[0].Labels["l"] != "a" {
		t.Errorf("metadata %+v", meta)
	}
	rec = w.do("GET", widgets+"/a", "", "", "Accept", protoType+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	obj, _, err := scheme.New().Decode(rec.Body.Bytes(), scheme.Protobuf, nil)
	if err != nil {
		t.Fatalf("metadata as protobuf: %v: %d %s", err, rec.Code, rec.Body)
	}
	if p := obj.(*metav1.PartialObjectMetadata); p.Name != "a" || p.UID != made.GetUID() {
		t.Errorf("metadata as protobuf: %+v", p)
	}
	must[metav1.Status](w, 200, "DELETE", widgets+"/a", "", "")
	must[unstructured.UnstructuredList](w, 200, "DELETE", widgets, "", "")
	if left := must[unstructured.UnstructuredList](w, 200, "GET", widgets, "", ""); len(left.Items) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Server-side apply tracks the fields of a kind added at run time.
func TestApplyToKindAddedAtRunTime(t *testing.T) {
	w := start(t)
	addWidgets(t, w)
	const applyType = "application/apply-patch+yaml"
	apply := func(code int, manager, spec string) *unstructured.Unstructured {
		return must[unstructured.Unstructured](w, code, "PATCH", widgets+"/a?fieldManager="+manager, applyType, widget("a", spec))
	}
	made := apply(201, "one", `{"size":3,"notes":{"x":"1"}}`)
	if len(made.GetManagedFields()) != 1 || specOf(made) != `{"color":"red","notes":{"x":"1"},"size":3}` {
		t.Errorf("applied %v", made.Object)
	}
	apply(200, "two", `{"notes":{"y":"2"}}`)
	apply(409, "two", `{"size":4}`)
	if got := apply(200, "one", `{"size":3}`); specOf(got) != `{"color":"red","notes":{"y":"2"},"size":3}` {
		t.Errorf("the owner has dropped a field: %v", got.Object)
	}
}

// Discovery and OpenAPI change with the served kinds.
func TestDiscoveryFollowsTheKinds(t *testing.T) {
	w := start(t)
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	shown := func() (out []bool) {
		for _, at := range []struct{ path, accept, want string }{
			{"/apis", "application/json", `"stable.example.com"`},
			{"/apis", aggregated, `"widgets"`},
			{group, "application/json", `"widgets"`},
			{"/", "application/json", group},
			{"/openapi/v2", "application/json", `"com.example.stable.v1.Widget"`},
			{"/openapi/v3", "application/json", "apis/stable.example.com/v1"},
			{"/openapi/v3/apis/stable.example.com/v1", "application/json", `"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"`},
		} {
			rec := w.do("GET", at.path, "", "", "Accept", at.accept)
			out = append(out, rec.Code == http.StatusOK && strings.Contains(rec.Body.String(), at.want))
		}
		return out
	}
	all := func(want bool) {
		t.Helper()
		for i, got := range shown() {
			if got != want {
				t.Errorf("document %d: shows the kind: %v", i, got)
			}
		}
	}
	all(false)
	addWidgets(t, w)
	all(true)
	rec := w.do("GET", "/openapi/v2", "", "", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if rec.Code != http.StatusOK {
		t.Errorf("OpenAPI v2 as protobuf: %d %s", rec.Code, rec.Body)
	}
	w.server.RemoveKind(schema.GroupResource{Group: "stable.example.com", Resource: "widgets"})
	all(false)
}

// watchLines returns the lines of a watch. The channel is closed when the watch
// ends.
func (w *world) watchLines(ctx context.Context, path string) <-chan string {
	server := httptest.NewServer(w.handler)
	w.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		w.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer answer.Body.Close()
		for s := bufio.NewScanner(answer.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// Removing a kind ends its watches. When it is added again, the stored objects
// are served again, with writes made in between.
func TestRemovedKindReturns(t *testing.T) {
	w := start(t)
	addWidgets(t, w)
	must[unstructured.Unstructured](w, 201, "POST", widgets, jsonType, widget("a", `{}`))
	lines := w.watchLines(t.Context(), widgets+"?watch=1")
	if first := <-lines; !strings.Contains(first, `"ADDED"`) || !strings.Contains(first, `"kind":"Widget"`) {
		t.Errorf("first event %s", first)
	}
	w.server.RemoveKind(schema.GroupResource{Group: "stable.example.com", Resource: "widgets"})
	if line, ok := <-lines; ok {
		t.Errorf("a watch of a removed kind says %s", line)
	}
	must[metav1.Status](w, 404, "GET", widgets+"/a", "", "")
	addWidgets(t, w)
	must[unstructured.Unstructured](w, 200, "GET", widgets+"/a", "", "")
	lines = w.watchLines(t.Context(), widgets+"?watch=1")
	<-lines
	must[unstructured.Unstructured](w, 201, "POST", widgets, jsonType, widget("b", `{}`))
	if next := <-lines; !strings.Contains(next, `"ADDED"`) || !strings.Contains(next, `"name":"b"`) {
		t.Errorf("next event %s", next)
	}
}

// Clients read, watch and write while a kind is added and removed. No
// acknowledged write is lost, and other kinds are unaffected.
func TestKindsComeAndGoUnderLoad(t *testing.T) {
	w := start(t)
	gr := schema.GroupResource{Group: "stable.example.com", Resource: "widgets"}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	stored := map[string]bool{}
	for c := range 3 {
		clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("w%d-%d", c, i)
				if rec := w.do("POST", widgets, jsonType, widget(name, `{"size":1}`)); rec.Code == http.StatusCreated {
					mu.Lock()
					stored[name] = true
					mu.Unlock()
				} else if rec.Code != http.StatusNotFound {
					t.Errorf("create: %d %s", rec.Code, rec.Body)
				}
				if rec := w.do("GET", widgets, "", ""); rec.Code != http.StatusOK && rec.Code != http.StatusNotFound {
					t.Errorf("list: %d %s", rec.Code, rec.Body)
				}
				if rec := w.do("GET", widgets+"?watch=1&timeoutSeconds=1", "", ""); rec.Code != http.StatusOK && rec.Code != http.StatusNotFound {
					t.Errorf("watch: %d %s", rec.Code, rec.Body)
				}
				must[corev1.ConfigMap](w, 201, "POST", cms, jsonType, configMap(name))
			}
		})
	}
	for range 20 {
		addWidgets(t, w)
		must[unstructured.UnstructuredList](w, 200, "GET", widgets, "", "") // the kind is in use before it goes
		w.server.RemoveKind(gr)
	}
	stop()
	clients.Wait()
	addWidgets(t, w)
	list := must[unstructured.UnstructuredList](w, 200, "GET", widgets, "", "")
	if len(list.Items) < len(stored) {
		t.Errorf("%d objects were created and %d are there", len(stored), len(list.Items))
	}
}
