package apiserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/registry"
)

func TestEphemeralContainersAreOnlyAdded(t *testing.T) {
	w := start(t, func(c *apiserver.Config) {
		c.Kinds = registry.Kinds(c.Scheme, registry.Config{
			Store: c.Store, ServiceCIDR: c.ServiceCIDR, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now, DenyPrivileged: true,
		})
	})
	withAccount(w)
	must[corev1.Pod](w, 201, "POST", podPath, jsonType, podWith("p", `{}`))
	part := podPath + "/p/ephemeralcontainers"
	one := `{"name":"one","image":"i","targetContainerName":"c"}`
	patch := func(list string) string { return fmt.Sprintf(`{"spec":{"ephemeralContainers":[%s]}}`, list) }

	p := must[corev1.Pod](w, 200, "PATCH", part, smpType, `{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"n","ephemeralContainers":[`+one+`]}}`)
	if c := p.Spec.EphemeralContainers; len(c) != 1 || c[0].ImagePullPolicy != corev1.PullAlways || p.Spec.NodeName != "" || len(p.Labels) != 0 || p.Generation != 2 {
		t.Errorf("patched: %+v", p)
	}
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "two", Image: "i"}})
	p = must[corev1.Pod](w, 200, "PUT", part, jsonType, encode(t, p))
	if got := must[corev1.Pod](w, 200, "GET", part, "", ""); len(got.Spec.EphemeralContainers) != 2 || got.ResourceVersion != p.ResourceVersion {
		t.Errorf("got %+v", got.Spec.EphemeralContainers)
	}
	for body, want := range map[string]string{
		patch(`{"name":"one","image":"j"}`):                                     `spec: Forbidden: existing ephemeral containers \"one\" may not be changed`,
		patch(`{"name":"c","image":"i"}`):                                       `spec.ephemeralContainers[0].name: Duplicate value: \"c\"`,
		patch(`{"name":"x","image":"i","securityContext":{"privileged":true}}`): "disallowed by cluster policy",
		patch(`{"name":"x","image":"i","ports":[{"containerPort":80}]}`):        "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
	} {
		if res := w.do("PATCH", part, smpType, body); res.Code != 422 || !strings.Contains(res.Body.String(), want) {
			t.Errorf("%s: %d %s", body, res.Code, res.Body)
		}
	}
	if res := w.do("PATCH", part, mergeType, patch("")); res.Code != 422 || !strings.Contains(res.Body.String(), "may not be removed") {
		t.Errorf("removed: %d %s", res.Code, res.Body)
	}
	if res := w.do("PATCH", podPath+"/p", smpType, patch(`{"name":"three","image":"i"}`)); res.Code != 422 {
		t.Errorf("by the pod itself: %d %s", res.Code, res.Body)
	}
	if res := w.do("POST", podPath, jsonType, `{"metadata":{"name":"q"},"spec":{"containers":[{"name":"c","image":"i"}],"ephemeralContainers":[`+one+`]}}`); res.Code != 422 || !strings.Contains(res.Body.String(), "cannot be set on create") {
		t.Errorf("created: %d %s", res.Code, res.Body)
	}
}

func TestEphemeralContainersGetOnlyMountableSecrets(t *testing.T) {
	w := start(t)
	must[corev1.ServiceAccount](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", jsonType,
		`{"metadata":{"name":"default","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},"secrets":[{"name":"ours"}]}`)
	must[corev1.Pod](w, 201, "POST", podPath, jsonType, podWith("p", `{}`))
	for secret, code := range map[string]int{"theirs": 403, "ours": 200} {
		body := fmt.Sprintf(`{"spec":{"ephemeralContainers":[{"name":%q,"image":"i","envFrom":[{"secretRef":{"name":%[1]q}}]}]}}`, secret)
		if res := w.do("PATCH", podPath+"/p/ephemeralcontainers", smpType, body); res.Code != code {
			t.Errorf("%s: %d %s, want %d", secret, res.Code, res.Body, code)
		}
	}
}

func TestResizeChangesOnlyComputeResources(t *testing.T) {
	w := start(t)
	withAccount(w)
	withQuota(w, "cpu", `{"requests.cpu":"1"}`, `{"requests.cpu":"0"}`)
	must[corev1.Pod](w, 201, "POST", podPath, jsonType, podWith("p", `{"requests":{"cpu":"100m","memory":"1Mi"},"limits":{"cpu":"200m"}}`))
	part := podPath + "/p/resize"
	patch := func(resources string) string {
		return fmt.Sprintf(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"j","resources":%s}]}}`, resources)
	}
	if res := w.do("PATCH", part, smpType, patch(`{"requests":{"memory":null}}`)); res.Code != 422 || !strings.Contains(res.Body.String(), "resource requests cannot be removed") {
		t.Errorf("without a request: %d %s", res.Code, res.Body)
	}
	p := must[corev1.Pod](w, 200, "PATCH", part, smpType, patch(`{"requests":{"cpu":"150m"},"limits":{"memory":"2Mi"}}`))
	if r := p.Spec.Containers[0].Resources; r.Requests.Cpu().String() != "150m" || r.Limits.Memory().String() != "2Mi" || p.Spec.Containers[0].Image != "i" || len(p.Labels) != 0 || p.Generation != 2 {
		t.Errorf("patched: %+v", p)
	}
	if q := usedOf(w, "cpu", "requests.cpu"); q != "150m" {
		t.Errorf("the quota's usage is %s", q)
	}
	for resources, want := range map[string]string{
		`{"limits":{"cpu":null}}`:                  "resource limits cannot be removed",
		`{"requests":{"ephemeral-storage":"1Gi"}}`: "only cpu and memory resources are mutable",
		`{"requests":{"cpu":"300m"}}`:              "must be less than or equal to cpu limit of 200m",
		`{"requests":{"cpu":"200m","memory":"2Mi"},"limits":{"cpu":"200m","memory":"2Mi"}}`: "Pod QOS Class may not change as a result of resizing",
	} {
		if res := w.do("PATCH", part, smpType, patch(resources)); res.Code != 422 || !strings.Contains(res.Body.String(), want) {
			t.Errorf("%s: %d %s", resources, res.Code, res.Body)
		}
	}
	if res := w.do("PATCH", part, smpType, patch(`{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}`)); res.Code != 403 || !strings.Contains(res.Body.String(), "exceeded quota: cpu") {
		t.Errorf("beyond the quota: %d %s", res.Code, res.Body)
	}
	if res := w.do("PATCH", podPath+"/p", smpType, patch(`{"requests":{"cpu":"120m"}}`)); res.Code != 422 {
		t.Errorf("by the pod itself: %d %s", res.Code, res.Body)
	}
	must[corev1.Pod](w, 200, "PATCH", podPath+"/p/status", mergeType, `{"status":{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":0,"state":{"running":{}}}]}}`)
	if res := w.do("PATCH", part, smpType, patch(`{"requests":{"cpu":"120m"}}`)); res.Code != 422 || !strings.Contains(res.Body.String(), "Pod running on node without support for resize") {
		t.Errorf("an old node: %d %s", res.Code, res.Body)
	}
	for _, r := range must[metav1.APIResourceList](w, 200, "GET", "/api/v1", "", "").APIResources {
		if r.Name == "pods/resize" && r.Kind != "Pod" {
			t.Errorf("discovery: %+v", r)
		}
	}
}

// A LimitRange bounds resizes as it bounds pods.
func TestLimitRangesBoundResizes(t *testing.T) {
	w := start(t)
	withAccount(w)
	must[corev1.Pod](w, 201, "POST", podPath, jsonType, podWith("p", `{"requests":{"cpu":"100m"},"limits":{"cpu":"200m"}}`))
	must[corev1.LimitRange](w, 201, "POST", "/api/v1/namespaces/default/limitranges", jsonType, `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","max":{"cpu":"300m"}}]}}`)
	until(w, "/api/v1/namespaces/default/limitranges/l", "300m")
	if res := w.do("PATCH", podPath+"/p/resize", smpType, `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"400m"}}}]}}`); res.Code != 403 || !strings.Contains(res.Body.String(), "maximum cpu usage per Container is 300m, but limit is 400m") {
		t.Errorf("%d %s", res.Code, res.Body)
	}
}
