package apiserver_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubectl drain evicts if the subresource pods/eviction has a group and a
// version; kubectl before 1.28 also wants the group to be listed.
func TestDrainFindsEviction(t *testing.T) {
	w := start(t)
	groups := must[metav1.APIGroupList](w, 200, "GET", "/apis", "", "").Groups
	at := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == "policy" })
	if at < 0 || groups[at].PreferredVersion.GroupVersion != "policy/v1" {
		t.Errorf("the group policy is not listed: %+v", groups)
	}
	eviction := slices.IndexFunc(must[metav1.APIResourceList](w, 200, "GET", "/api/v1", "", "").APIResources, func(r metav1.APIResource) bool {
		return r.Name == "pods/eviction" && r.Kind == "Eviction" && r.Group == "policy" && r.Version == "v1"
	})
	if eviction < 0 {
		t.Error("pods/eviction is not found")
	}
	list := must[map[string]any](w, 200, "GET", "/apis/policy/v1", "", "")
	if resources, ok := (*list)["resources"].([]any); !ok || len(resources) > 0 {
		t.Errorf("policy/v1 has no resources yet, and says so by a list: %v", *list)
	}
	must[metav1.Status](w, 404, "GET", "/apis/policy/v1/poddisruptionbudgets", "", "")
}
