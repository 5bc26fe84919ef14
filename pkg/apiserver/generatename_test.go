package apiserver_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/scheme"
)

// repeating is random, but for the suffixes of generated names: each comes twice.
type repeating struct{ suffixes atomic.Int64 }

func (r *repeating) Read(p []byte) (int, error) {
	if len(p) == 5 {
		n := r.suffixes.Add(1) - 1
		return copy(p, bytes.Repeat([]byte{byte(n / 2)}, len(p))), nil
	}
	return rand.Read(p)
}

// Mutating webhooks see an object as it was sent, validating ones with the name and the
// system metadata that it gets. If the name is taken, only the latter are asked again.
func TestAdmissionOfGeneratedNames(t *testing.T) {
	w := start(t, func(c *apiserver.Config) { c.Random = &repeating{} })
	hook := func(resp func() *admissionv1.AdmissionResponse) *hookServer {
		return serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return resp() })
	}
	mutating, validating := hook(func() *admissionv1.AdmissionResponse {
		return patched(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"add","path":"/metadata/deletionTimestamp","value":"2026-01-01T00:00:00Z"}]`)
	}), hook(allow)
	w.register("mutating", "m", mutating.hook("m"))
	w.register("validating", "v", validating.hook("v"))
	const body = `{"metadata":{"generateName":"x-","uid":"mine","creationTimestamp":"2020-01-01T00:00:00Z","deletionTimestamp":"2020-01-01T00:00:00Z"}}`
	first := must[corev1.ConfigMap](w, 201, "POST", configMaps, scheme.JSON, body)
	if first.Name != "x-bbbbb" || first.UID == "" || first.UID == "mine" || first.CreationTimestamp.IsZero() || first.DeletionTimestamp != nil || first.Labels["a"] != "b" {
		t.Errorf("created %+v", first.ObjectMeta)
	}
	seen := func(r admissionv1.AdmissionRequest) metav1.ObjectMeta {
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Object.Raw, &m); err != nil {
			t.Fatal(err)
		}
		return m.ObjectMeta
	}
	if r := mutating.requests()[0]; r.Name != "" || seen(r).Name != "" || seen(r).GenerateName != "x-" || seen(r).UID != "" || seen(r).CreationTimestamp != (metav1.Time{}) {
		t.Errorf("the mutating webhook saw %q: %s", r.Name, r.Object.Raw)
	}
	if r := validating.requests()[0]; r.Name != first.Name || seen(r).Name != first.Name || seen(r).UID != first.UID || seen(r).Labels["a"] != "b" {
		t.Errorf("the validating webhook saw %q: %s", r.Name, r.Object.Raw)
	}

	second := must[corev1.ConfigMap](w, 201, "POST", configMaps, scheme.JSON, body)
	if second.Name != "x-ccccc" || second.UID == first.UID {
		t.Errorf("created %+v", second.ObjectMeta)
	}
	if m, v := len(mutating.requests()), len(validating.requests()); m != 2 || v != 3 {
		t.Errorf("the webhooks were asked %d and %d times, want 2 and 3", m, v)
	}
}

// A mutating webhook may choose the name that would be generated.
func TestMutationOfGeneratedNames(t *testing.T) {
	w := start(t)
	h := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patched(`[{"op":"add","path":"/metadata/name","value":"chosen"}]`)
	})
	w.register("mutating", "m", h.hook("m"))
	if got := must[corev1.ConfigMap](w, 201, "POST", configMaps, scheme.JSON, `{"metadata":{"generateName":"x-"}}`); got.Name != "chosen" {
		t.Errorf("name %q", got.Name)
	}
	rec := w.do("POST", configMaps, scheme.JSON, `{"metadata":{"generateName":"x-"}}`)
	if rec.Code != 409 || !strings.Contains(rec.Body.String(), `"reason":"AlreadyExists"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
