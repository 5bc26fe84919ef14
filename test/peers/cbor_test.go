package peers

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
)

// A client that prefers CBOR writes, applies, reads and watches in CBOR, objects of
// Go types as well as others.
func TestAClientThatPrefersCBOR(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	featurestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	s := startServer(t)
	media := &mediaTypes{}
	config := s.config()
	config.Wrap(media.wrap)
	c, err := dynamic.NewForConfig(config)
	check(t, err)
	maps := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"k": "v"},
	}}
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	check(t, err)
	watch, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	check(t, err)
	defer watch.Stop()
	_, err = maps.Create(t.Context(), object, metav1.CreateOptions{})
	check(t, err)
	unstructured.SetNestedField(object.Object, "w", "data", "k")
	_, err = maps.Apply(t.Context(), "c", object, metav1.ApplyOptions{FieldManager: "peer", Force: true})
	check(t, err)
	got, err := maps.Get(t.Context(), "c", metav1.GetOptions{})
	check(t, err)
	if value, _, _ := unstructured.NestedString(got.Object, "data", "k"); value != "w" {
		t.Errorf("read %v", got.Object)
	}
	for _, want := range []struct{ kind, value string }{{"ADDED", "v"}, {"MODIFIED", "w"}} {
		e := <-watch.ResultChan()
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok || string(e.Type) != want.kind {
			t.Fatalf("watched %+v, want %s", e, want.kind)
		}
		if value, _, _ := unstructured.NestedString(u.Object, "data", "k"); value != want.value {
			t.Errorf("%s %v", e.Type, u.Object)
		}
	}
	check(t, maps.Delete(t.Context(), "c", metav1.DeleteOptions{}))
	for _, other := range media.others() {
		t.Errorf("not in CBOR: %s", other)
	}
}

// mediaTypes records requests and responses that are not CBOR.
type mediaTypes struct {
	mu    sync.Mutex
	found []string
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (m *mediaTypes) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		sent, answered := r.Header.Get("Content-Type"), ""
		if err == nil {
			answered = resp.Header.Get("Content-Type")
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.Body != nil && !strings.Contains(sent, "cbor") || !strings.Contains(answered, "cbor") {
			m.found = append(m.found, fmt.Sprintf("%s %s: %q, %q", r.Method, r.URL, sent, answered))
		}
		return resp, err
	})
}

func (m *mediaTypes) others() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.found
}
