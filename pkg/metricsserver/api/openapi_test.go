package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TestOpenAPI reads the documents as kubectl explain does: the kind of a path, then the
// schema of the kind.
func TestOpenAPI(t *testing.T) {
	h, _ := newHandler()
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(ask(h, "admin", "GET", "/openapi/v3", "").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	url := index.Paths["apis/metrics.k8s.io/v1beta1"].ServerRelativeURL
	if !strings.HasPrefix(url, "/openapi/v3/apis/metrics.k8s.io/v1beta1?hash=") {
		t.Fatalf("the index is %+v", index)
	}
	var v3 spec3.OpenAPI
	if err := json.Unmarshal(ask(h, "admin", "GET", url, "").Body.Bytes(), &v3); err != nil {
		t.Fatal(err)
	}
	var v2 spec.Swagger
	if err := json.Unmarshal(ask(h, "admin", "GET", "/openapi/v2", "").Body.Bytes(), &v2); err != nil {
		t.Fatal(err)
	}
	want := []string{root + "/namespaces/{namespace}/pods", root + "/namespaces/{namespace}/pods/{name}", root + "/nodes", root + "/nodes/{name}", root + "/pods"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(v3.Paths.Paths))); diff != "" {
		t.Errorf("the paths (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(v2.Paths.Paths))); diff != "" {
		t.Errorf("the paths of version 2 (-want +got):\n%s", diff)
	}
	for _, model := range []string{"NodeMetrics", "NodeMetricsList", "PodMetrics", "PodMetricsList"} {
		s := v3.Components.Schemas["io.k8s.metrics.pkg.apis.metrics.v1beta1."+model]
		if s == nil || !strings.Contains(toJSON(t, s.Extensions), `"kind":"`+model+`"`) {
			t.Errorf("no schema is of the kind %s", model)
		}
	}
}

// TestDiscovery reads what the kube-apiserver's aggregator reads.
func TestDiscovery(t *testing.T) {
	h, _ := newHandler()
	w := ask(h, "admin", "GET", root, "")
	var list metav1.APIResourceList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range list.APIResources {
		got = append(got, r.Name+" "+r.Kind+" "+strings.Join(r.Verbs, ","))
	}
	if diff := cmp.Diff([]string{"nodes NodeMetrics get,list", "pods PodMetrics get,list"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r := httptest.NewRequest(http.MethodGet, root, nil)
	r.Header = http.Header{"X-User": {"admin"}, "If-None-Match": {w.Header().Get("ETag")}}
	again := httptest.NewRecorder()
	if h.ServeHTTP(again, r); again.Code != http.StatusNotModified {
		t.Errorf("a document that has not changed is sent again: %d", again.Code)
	}
	if w := ask(h, "joe", "GET", root, ""); w.Code != http.StatusForbidden {
		t.Errorf("to a user without rights: %d", w.Code)
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
