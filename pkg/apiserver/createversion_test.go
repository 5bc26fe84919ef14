package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A create with a resourceVersion is refused only when the object would be
// stored, after all other checks. A dry run accepts it.
func TestCreateWithAResourceVersion(t *testing.T) {
	w := start(t)
	const good, bad = `{"metadata":{"name":"x","resourceVersion":"5"}}`, `{"metadata":{"name":"X_","resourceVersion":"5"}}`
	const text = "resourceVersion should not be set on objects to be created"
	if s := must[metav1.Status](w, http.StatusBadRequest, "POST", cms, jsonType, good); s.Message != text {
		t.Errorf("message %q", s.Message)
	}
	must[metav1.Status](w, http.StatusUnprocessableEntity, "POST", cms, jsonType, bad)
	must[metav1.Status](w, http.StatusUnprocessableEntity, "POST", cms+"?dryRun=All", jsonType, bad)
	tried := must[corev1.ConfigMap](w, http.StatusCreated, "POST", cms+"?dryRun=All", jsonType, good)
	if tried.ResourceVersion != "5" || tried.UID == "" {
		t.Errorf("the dry run answers %+v, want what was sent and a UID", tried.ObjectMeta)
	}
	must[metav1.Status](w, http.StatusNotFound, "GET", cms+"/x", "", "")

	generated := strings.Replace(good, `"name":"x"`, `"generateName":"x-"`, 1)
	must[corev1.ConfigMap](w, http.StatusCreated, "POST", cms+"?dryRun=All", jsonType, generated)
	must[metav1.Status](w, http.StatusBadRequest, "POST", cms, jsonType, generated)
	zero := must[corev1.ConfigMap](w, http.StatusCreated, "POST", cms, jsonType, strings.Replace(good, `"5"`, `"0"`, 1))
	if zero.ResourceVersion == "0" {
		t.Error("what was stored has no revision")
	}
	must[metav1.Status](w, http.StatusConflict, "POST", cms+"?dryRun=All", jsonType, good)
	must[metav1.Status](w, http.StatusBadRequest, "POST", cms, jsonType, good)
}
