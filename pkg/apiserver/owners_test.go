package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheme"
)

// Equal owner references are stored once, with a warning. Those that differ in any field
// are kept.
func TestOwnersAreNotRepeated(t *testing.T) {
	const (
		one     = `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"1","controller":true}`
		two     = `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"1","controller":false}`
		three   = `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"1"}`
		end     = "; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1"
		warning = `299 - ".metadata.ownerReferences contains duplicate entries` + end + `"`
		late    = `299 - ".metadata.ownerReferences contains duplicate entries after mutating admission happens` + end + `"`
	)
	object := func(owners ...string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","ownerReferences":[` + strings.Join(owners, ",") + `]}}`
	}
	w := start(t)
	for _, row := range []struct {
		name, method, media, body string
		owners                    int
		warning                   string
	}{
		{"created", "POST", jsonType, object(one, one), 1, warning},
		{"replaced", "PUT", jsonType, object(one, two, one), 2, warning},
		{"not repeated", "PUT", jsonType, object(one, two, three), 3, ""},
		{"patched", "PATCH", mergeType, object(three, three), 1, late},
	} {
		path, code := configMaps+"/x", 200
		if row.method == "POST" {
			path, code = configMaps, 201
		}
		rec := w.do(row.method, path, row.media, row.body)
		if got := rec.Header().Get("Warning"); rec.Code != code || got != row.warning {
			t.Errorf("%s: %d %s, warning %s", row.name, rec.Code, rec.Body, got)
		}
		if got := must[corev1.ConfigMap](w, 200, "GET", configMaps+"/x", "", "").OwnerReferences; len(got) != row.owners || got[0].UID != types.UID("1") {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
	h := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patched(`[{"op":"add","path":"/metadata/ownerReferences","value":[` + one + `,` + one + `]}]`)
	})
	w.register("mutating", "m", h.hook("m"))
	rec := w.do("POST", configMaps, scheme.JSON, configMap("y"))
	if got := rec.Header().Get("Warning"); rec.Code != 201 || got != late || strings.Count(rec.Body.String(), `"uid":"1"`) != 1 {
		t.Errorf("by a webhook: %d %s, warning %s", rec.Code, rec.Body, got)
	}
}
