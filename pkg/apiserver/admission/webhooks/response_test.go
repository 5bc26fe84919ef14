package webhooks

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
)

// FuzzResponse feeds a mutating webhook's response to the plugin: it is refused,
// or its patch gives an object.
func FuzzResponse(f *testing.F) {
	const open = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u",`
	for _, seed := range []string{
		open + `"allowed":true}}`,
		open + `"allowed":false,"status":{"code":-1,"message":"no","details":{"causes":[null]}}}}`,
		open + `"allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYiIsInZhbHVlIjoiMiJ9XQ=="}}`,
		open + `"allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6IiIsInZhbHVlIjpudWxsfV0="}}`,
		open + `"allowed":true,"patchType":"","patch":"bm8="}}`,
		`{"response":{}}`, `[]`, `{"response":null}`, ``,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	f.Fuzz(func(t *testing.T, answer []byte, mutating bool) {
		got, err := decode(t.Context(), answer)
		if err != nil {
			return
		}
		question := &review{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &admissionv1.AdmissionRequest{UID: "u"}}
		if got.verify(question, mutating) != nil {
			return
		}
		h := &hook{}
		h.Name = "hook.test.io"
		h.record(t.Context(), got.Response)
		if !got.Response.Allowed {
			if status := h.denial(got.Response.Result).ErrStatus; status.Code < 400 || status.Status == metav1.StatusSuccess || status.Message == "" {
				t.Errorf("a denial of %+v", status)
			}
		}
		if len(got.Response.Patch) == 0 {
			return
		}
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"a": "1"}}
		a := &admission.Attributes{Operation: admission.Create, Kind: gvk, Object: obj}
		form := &a.InForms()[0]
		text, err := form.JSON(obj)
		if err != nil {
			t.Fatal(err)
		}
		changed, err := h.apply(a, form, text, got.Response)
		if changed && err != nil || obj.Kind != "" {
			t.Errorf("changed %v with %v, kind %q", changed, err, obj.Kind)
		}
	})
}
