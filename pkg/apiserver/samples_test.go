package apiserver_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// A sample is an object of registry/testdata/kinds.yaml.
type sample struct {
	unstructured.Unstructured
	kind *registry.Kind
	path string // of its collection
}

func samples(t *testing.T) []sample {
	t.Helper()
	data, err := os.ReadFile("registry/testdata/kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := scheme.New()
	kinds := map[*scheme.Kind]*registry.Kind{}
	for _, k := range registry.Kinds(s, registry.Config{}) {
		kinds[k.Kind] = k
	}
	var out []sample
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		var one sample
		if err := yaml.Unmarshal([]byte(text), &one.Object); err != nil {
			t.Fatal(err)
		}
		one.kind = kinds[s.ByKind(one.GroupVersionKind())]
		one.path = "/apis/" + one.GetAPIVersion()
		if one.kind.Group == "" {
			one.path = "/api/v1"
		}
		if one.kind.Namespaced {
			one.path += "/namespaces/" + one.GetNamespace()
		}
		one.path += "/" + one.kind.Resource
		out = append(out, one)
	}
	return out
}

func encode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Each sample is created, printed, applied, read and written through its status subresource
// and deleted. A kind that nothing acts on says so.
func TestSamplesOverTheWire(t *testing.T) {
	w := start(t)
	for _, s := range samples(t) {
		t.Run(s.GetKind(), func(t *testing.T) {
			at := s.path + "/" + s.GetName()
			rec := w.do("POST", s.path, jsonType, encode(t, s.Object))
			if rec.Code != 201 {
				t.Fatalf("create: %d %s", rec.Code, rec.Body)
			}
			if warned := strings.Contains(rec.Header().Get("Warning"), "no controller"); warned != s.kind.NoController {
				t.Errorf("the warning is %q", rec.Header().Get("Warning"))
			}
			rec = w.do("GET", s.path, "", "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
			var table metav1.Table
			if err := json.Unmarshal(rec.Body.Bytes(), &table); err != nil || len(table.Rows) == 0 || len(table.Rows[0].Cells) != len(s.kind.Columns) {
				t.Errorf("the table: %d %s", rec.Code, rec.Body)
			}
			if rec := w.do("PATCH", at+"?fieldManager=m", applyType, encode(t, map[string]any{
				"apiVersion": s.GetAPIVersion(), "kind": s.GetKind(), "metadata": map[string]any{"name": s.GetName(), "labels": map[string]any{"a": "b"}},
			})); rec.Code != 200 {
				t.Errorf("apply: %d %s", rec.Code, rec.Body)
			}
			if slices.ContainsFunc(s.kind.Subresources, func(s *registry.Subresource) bool { return s.Name == "status" }) {
				rec := w.do("GET", at+"/status", "", "")
				if rec.Code != 200 {
					t.Errorf("get the status: %d %s", rec.Code, rec.Body)
				}
				if rec := w.do("PUT", at+"/status", jsonType, rec.Body.String()); rec.Code != 200 {
					t.Errorf("put the status: %d %s", rec.Code, rec.Body)
				}
			}
			if rec := w.do("DELETE", at, "", ""); rec.Code != 200 {
				t.Errorf("delete: %d %s", rec.Code, rec.Body)
			}
			// No controller runs here that removes the finalizers of storage.
			if rec := w.do("PATCH", at, "application/merge-patch+json", `{"metadata":{"finalizers":null}}`); rec.Code != 200 && rec.Code != 404 {
				t.Errorf("remove finalizers: %d %s", rec.Code, rec.Body)
			}
			if rec := w.do("GET", at, "", ""); rec.Code != 404 {
				t.Errorf("after the delete: %d %s", rec.Code, rec.Body)
			}
		})
	}
}

// Whatever a field of a sample becomes, the answer is never a 500: neither to a
// create, nor to an update of the object or its status.
func TestSamplesWithBadFields(t *testing.T) {
	w := start(t)
	for _, s := range samples(t) {
		t.Run(s.GetKind(), func(t *testing.T) {
			at := s.path + "/" + s.GetName()
			if rec := w.do("POST", s.path, jsonType, encode(t, s.Object)); rec.Code != 201 {
				t.Fatalf("create: %d %s", rec.Code, rec.Body)
			}
			tried := 0
			spoil(s.Object, func(what string) {
				tried++
				body := encode(t, s.Object)
				for _, request := range [][2]string{{"POST", s.path}, {"PUT", at}, {"PUT", at + "/status"}} {
					if rec := w.do(request[0], request[1]+"?dryRun=All", jsonType, body); rec.Code >= 500 {
						t.Errorf("%s %s with %s: %d %s", request[0], request[1], what, rec.Code, rec.Body)
					}
				}
			})
			if tried < 10 {
				t.Errorf("only %d bad objects were tried", tried)
			}
		})
	}
}

// spoil calls try with each field of the object replaced by each bad value in turn.
func spoil(object map[string]any, try func(what string)) {
	bad := []any{nil, "", "a b/../", -1, 1e30, true, []any{nil}, []any{map[string]any{}}, map[string]any{}, map[string]any{"": nil}}
	var walk func(v any, path string)
	each := func(path string, old any, set func(any)) {
		for _, value := range bad {
			set(value)
			text, _ := json.Marshal(value)
			try(path + " = " + string(text))
		}
		set(old)
		walk(old, path)
	}
	walk = func(v any, path string) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if path == "" && (key == "apiVersion" || key == "kind" || key == "metadata") {
					continue
				}
				each(path+"."+key, v[key], func(value any) { v[key] = value })
			}
		case []any:
			for i := range v {
				each(path+"["+strconv.Itoa(i)+"]", v[i], func(value any) { v[i] = value })
			}
		}
	}
	walk(object, "")
}
