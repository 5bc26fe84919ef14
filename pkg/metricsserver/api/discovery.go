package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/scheme"
)

// documents returns the discovery and OpenAPI documents by path.
func documents() map[string]http.Handler {
	version := metav1.GroupVersionForDiscovery{GroupVersion: metricsv1beta1.SchemeGroupVersion.String(), Version: metricsv1beta1.SchemeGroupVersion.Version}
	group := metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"},
		Name:     metricsv1beta1.GroupName, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
	bare := group
	bare.TypeMeta = metav1.TypeMeta{}
	verbs := metav1.Verbs{"get", "list"}
	return map[string]http.Handler{
		"/apis":                             static(&metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: []metav1.APIGroup{bare}}),
		"/apis/" + metricsv1beta1.GroupName: static(&group),
		"/openapi/v2":                       served(openAPIV2),
		"/openapi/v3":                       static(openAPIIndex()),
		"/openapi/v3" + root:                served(openAPIV3),
		root: static(&metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: version.GroupVersion,
			APIResources: []metav1.APIResource{
				{Name: "nodes", Kind: "NodeMetrics", Verbs: verbs},
				{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: verbs},
			},
		}),
	}
}

// static serves an object as JSON.
func static(obj any) http.Handler {
	body, err := json.Marshal(obj)
	if err != nil {
		panic(err) // these objects always have a JSON form
	}
	return served(body)
}

// served serves JSON. Clients that have the document, by its ETag, get a 304.
func served(body []byte) http.Handler {
	tag := `"` + hash(body) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", scheme.JSON)
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}
