package conversion

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var v2 = schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Host"}

func original() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Host", "spec": map[string]any{"a": int64(1)},
		"metadata": map[string]any{"name": "x", "uid": "u", "finalizers": []any{"f"}, "labels": map[string]any{"l": "1"}},
	}}
}

// FuzzResponse feeds the response of a webhook to the converter: it is refused, or it is
// the same object in the wanted version.
func FuzzResponse(f *testing.F) {
	const open = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[`
	for _, seed := range []string{
		open + `{"apiVersion":"example.com/v2","kind":"Host","metadata":{"name":"x","uid":"u","labels":{"new":"1"},"annotations":null}}]}}`,
		open + `{"apiVersion":"example.com/v2","kind":"Host","metadata":[]}]}}`,
		open + `{"apiVersion":1,"kind":null,"metadata":{"name":[],"labels":{"a":1}}}]}}`,
		open + `null]}}`, open + `[]]}}`, open + `]}}`, `{"response":null}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	c := &Converter{version: "v1"}
	f.Fuzz(func(t *testing.T, answer []byte) {
		got := &apiextensionsv1.ConversionReview{}
		if json.Unmarshal(answer, got) != nil || c.verify(got, "u") != nil {
			return
		}
		for _, raw := range got.Response.ConvertedObjects {
			in := original()
			out, problem := accept(in, raw.Raw, v2)
			if problem != nil {
				if problem.at(0, 1).Error() == "" || problem.at(1, 2).Error() == "" {
					t.Error("no text")
				}
				continue
			}
			if out.GroupVersionKind() != v2 || out.GetName() != "x" || out.GetUID() != "u" || len(out.GetFinalizers()) != 1 {
				t.Errorf("accepted %v", out)
			}
		}
	})
}

// Many objects are sent in reviews of bounded size, a large one alone.
func TestBatch(t *testing.T) {
	for want, sizes := range map[int][]int{1: {5 << 20, 1}, 2: {1 << 20, 1<<20 + 1<<19, 1 << 20}, 3: {1, 2, 3}} {
		var objs []*unstructured.Unstructured
		for _, n := range sizes {
			objs = append(objs, &unstructured.Unstructured{Object: map[string]any{"x": strings.Repeat("x", n)}})
		}
		if got, err := batch(objs); len(got) != want || err != nil {
			t.Errorf("%v: %d, want %d: %v", sizes, len(got), want, err)
		}
	}
}
