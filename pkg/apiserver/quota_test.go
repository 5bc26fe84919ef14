package apiserver_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/registry"
)

const (
	quotaPath = "/api/v1/namespaces/default/resourcequotas"
	podPath   = "/api/v1/namespaces/default/pods"
)

// withQuota creates a quota with usage, as the controller would complete it.
func withQuota(w *world, name, spec, used string) {
	w.Helper()
	must[corev1.ResourceQuota](w, 201, "POST", quotaPath, jsonType, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"hard":%s}}`, name, spec))
	must[corev1.ResourceQuota](w, 200, "PATCH", quotaPath+"/"+name+"/status", mergeType, fmt.Sprintf(`{"status":{"hard":%s,"used":%s}}`, spec, used))
}

func usedOf(w *world, name string, resource corev1.ResourceName) string {
	w.Helper()
	q := must[corev1.ResourceQuota](w, 200, "GET", quotaPath+"/"+name, "", "").Status.Used[resource]
	return q.String()
}

func podWith(name, resources string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","resources":%s}]}}`, name, resources)
}

// withAccount creates what pods need.
func withAccount(w *world) {
	w.Helper()
	must[corev1.ServiceAccount](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", jsonType, `{"metadata":{"name":"default"}}`)
}

// A quota admits exactly what it limits, whatever the number of clients and servers.
func TestQuotaIsExactUnderConcurrency(t *testing.T) {
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%dServers", servers), func(t *testing.T) {
			first := start(t)
			worlds := []*world{first}
			for range servers - 1 {
				worlds = append(worlds, start(t, sharing(first)))
			}
			withAccount(first)
			withQuota(first, "five", `{"pods":"5"}`, `{"pods":"0"}`)
			withQuota(first, "cpu", `{"requests.cpu":"1"}`, `{"requests.cpu":"0"}`)
			for _, w := range worlds[1:] { // the other server's cache may be behind
				until(w, quotaPath+"/cpu", `"requests.cpu":"0"`)
				until(w, quotaPath+"/five", `"pods":"0"`)
				until(w, "/api/v1/namespaces/default/serviceaccounts/default", "default")
			}
			var created atomic.Int64
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					w := worlds[i%len(worlds)]
					rec := w.do("POST", podPath, jsonType, podWith(fmt.Sprintf("p%d", i), `{"requests":{"cpu":"10m"}}`))
					switch {
					case rec.Code == 201:
						created.Add(1)
					case rec.Code != 403 || !strings.Contains(rec.Body.String(), "exceeded quota: five, requested: pods=1, used: pods=5, limited: pods=5"):
						t.Errorf("%d: %s", rec.Code, rec.Body)
					}
				})
			}
			wg.Wait()
			if n := created.Load(); n != 5 || usedOf(first, "five", "pods") != "5" {
				t.Errorf("%d pods created, %s used, want 5", n, usedOf(first, "five", "pods"))
			}
			if used := usedOf(first, "cpu", "requests.cpu"); servers == 1 && used != "50m" {
				t.Errorf("the pods that another quota refused are charged: %s", used)
			}
		})
	}
}

// sharing makes a server use the store of another.
func sharing(with *world) func(*apiserver.Config) {
	return func(c *apiserver.Config) {
		c.Store, c.Identity = with.store, "second"
		c.Kinds = registry.Kinds(c.Scheme, registry.Config{Store: with.store, ServiceCIDR: c.ServiceCIDR, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now})
	}
}

// until reads a path until the answer, possibly from a stale cache, has a text.
func until(w *world, path, text string) {
	w.Helper()
	for !strings.Contains(w.do("GET", path+"?resourceVersion=0", "", "").Body.String(), text) {
	}
}

func TestQuotaDenials(t *testing.T) {
	w := start(t)
	withAccount(w)
	withQuota(w, "q", `{"pods":"2","cpu":"1","limits.memory":"1Gi","requests.example.com/gpu":"1","services":"3","services.nodeports":"1","services.loadbalancers":"0","count/secrets":"1","configmaps":"1"}`,
		`{"pods":"1","cpu":"500m","limits.memory":"0","requests.example.com/gpu":"0","services":"0","services.nodeports":"0","services.loadbalancers":"0","count/secrets":"0","configmaps":"0"}`)
	must[corev1.ResourceQuota](w, 201, "POST", quotaPath, jsonType, `{"metadata":{"name":"unknown"},"spec":{"hard":{"count/leases.coordination.k8s.io":"1"}}}`)
	must[corev1.ResourceQuota](w, 200, "PATCH", quotaPath+"/unknown/status", mergeType, `{"status":{"hard":{"count/leases.coordination.k8s.io":"1"}}}`)
	const fits = `{"requests":{"cpu":"500m"},"limits":{"cpu":"1","memory":"1Mi"}}`
	service := func(name, spec string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"ports":[{"port":80}]%s}}`, name, spec)
	}
	secrets := "/api/v1/namespaces/default/secrets"
	for _, tc := range []struct {
		path, body string
		want       string // of the error; "": created
	}{
		{podPath, podWith("a", `{}`), `pods "a" is forbidden: failed quota: q: must specify cpu for: c; limits.memory for: c`},
		{podPath, podWith("a", `{"requests":{"cpu":"600m"},"limits":{"memory":"2Gi"}}`),
			`pods "a" is forbidden: exceeded quota: q, requested: cpu=600m,limits.memory=2Gi, used: cpu=500m,limits.memory=0, limited: cpu=1,limits.memory=1Gi`},
		{podPath, podWith("a", `{"requests":{"cpu":"1m"},"limits":{"memory":"1Mi","example.com/gpu":"2"}}`),
			`pods "a" is forbidden: exceeded quota: q, requested: requests.example.com/gpu=2, used: requests.example.com/gpu=0, limited: requests.example.com/gpu=1`},
		{podPath + "?dryRun=All", podWith("a", fits), ""},
		{podPath, podWith("a", fits), ""},
		{podPath + "?dryRun=All", podWith("b", fits), `exceeded quota: q, requested: cpu=500m,pods=1, used: cpu=1,pods=2, limited: cpu=1,pods=2`},
		{servicesPath, service("lb", `,"type":"LoadBalancer"`), `services "lb" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, used: services.loadbalancers=0, limited: services.loadbalancers=0`},
		{servicesPath, service("a", ""), ""},
		{servicesPath, service("b", `,"type":"NodePort"`), ""},
		{cms, configMap("a"), ""},
		{cms, configMap("b"), `configmaps "b" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1`},
		{secrets, `{"metadata":{"name":"a"}}`, ""},
		{secrets, `{"metadata":{"name":"b"}}`, `secrets "b" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1`},
		{"/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"a"}}`, `status unknown for quota: unknown, resources: count/leases.coordination.k8s.io`},
		{"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", `{"metadata":{"name":"a"}}`, ""},
	} {
		if tc.want == "" {
			must[metav1.PartialObjectMetadata](w, 201, "POST", tc.path, jsonType, tc.body)
		} else if s := must[metav1.Status](w, 403, "POST", tc.path, jsonType, tc.body); !strings.HasSuffix(s.Message, tc.want) || s.Reason != metav1.StatusReasonForbidden {
			t.Errorf("%s: %s\nwant %s", tc.body, s.Message, tc.want)
		}
	}
	// An update is charged for what it adds.
	s := must[metav1.Status](w, 403, "PATCH", servicesPath+"/a", mergeType, `{"spec":{"type":"NodePort"}}`)
	if want := "exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1"; !strings.HasSuffix(s.Message, want) {
		t.Error(s.Message)
	}
	must[corev1.Service](w, 200, "PATCH", servicesPath+"/b", mergeType, `{"metadata":{"labels":{"a":"b"}}}`)
	if got := usedOf(w, "q", "services"); got != "2" {
		t.Errorf("%s services are used, want 2", got)
	}
}

func TestQuotaOfDevices(t *testing.T) {
	w := start(t)
	const devices, path = "gpu.deviceclass.resource.k8s.io/devices", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
	withQuota(w, "q", `{"`+devices+`":"1"}`, `{"`+devices+`":"0"}`)
	claim := func(name, class string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":%q}}]}}}`, name, class)
	}
	must[metav1.PartialObjectMetadata](w, 201, "POST", path, jsonType, claim("a", "gpu"))
	s := must[metav1.Status](w, 403, "POST", path, jsonType, claim("b", "gpu"))
	if want := fmt.Sprintf(`"b" is forbidden: exceeded quota: q, requested: %s=1, used: %[1]s=1, limited: %[1]s=1`, devices); !strings.HasSuffix(s.Message, want) {
		t.Errorf("%s\nwant %s", s.Message, want)
	}
	must[metav1.PartialObjectMetadata](w, 201, "POST", path, jsonType, claim("c", "nic"))
	if got := usedOf(w, "q", devices); got != "1" {
		t.Errorf("%s devices are used, want 1", got)
	}
}

// A claim is charged to the quota of its class when it gets this class, too.
func TestQuotaOfAttributesClass(t *testing.T) {
	w := start(t)
	const path = "/api/v1/namespaces/default/persistentvolumeclaims"
	must[corev1.ResourceQuota](w, 201, "POST", quotaPath, jsonType,
		`{"metadata":{"name":"gold"},"spec":{"hard":{"requests.storage":"1Gi"},"scopeSelector":{"matchExpressions":[{"scopeName":"VolumeAttributesClass","operator":"In","values":["gold"]}]}}}`)
	must[corev1.ResourceQuota](w, 200, "PATCH", quotaPath+"/gold/status", mergeType, `{"status":{"hard":{"requests.storage":"1Gi"},"used":{"requests.storage":"0"}}}`)
	claim := func(name, class, size string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"fast","volumeAttributesClassName":%q,"resources":{"requests":{"storage":%q}}}}`, name, class, size)
	}
	const refused = "exceeded quota: gold, requested: requests.storage=2Gi, used: requests.storage=0, limited: requests.storage=1Gi"
	if s := must[metav1.Status](w, 403, "POST", path, jsonType, claim("a", "gold", "2Gi")); !strings.HasSuffix(s.Message, refused) {
		t.Error(s.Message)
	}
	must[corev1.PersistentVolumeClaim](w, 201, "POST", path, jsonType, claim("iron", "iron", "2Gi"))
	must[corev1.PersistentVolumeClaim](w, 201, "POST", path, jsonType, claim("small", "iron", "1Gi"))
	for _, name := range []string{"iron", "small"} {
		must[corev1.PersistentVolumeClaim](w, 200, "PATCH", path+"/"+name+"/status", mergeType, `{"status":{"phase":"Bound"}}`)
	}
	const toGold = `{"spec":{"volumeAttributesClassName":"gold"}}`
	if s := must[metav1.Status](w, 403, "PATCH", path+"/iron", mergeType, toGold); !strings.HasSuffix(s.Message, refused) {
		t.Error(s.Message)
	}
	must[corev1.PersistentVolumeClaim](w, 200, "PATCH", path+"/small", mergeType, toGold)
	must[corev1.PersistentVolumeClaim](w, 200, "PATCH", path+"/small", mergeType, `{"metadata":{"labels":{"a":"b"}}}`)
	if got := usedOf(w, "gold", "requests.storage"); got != "1Gi" {
		t.Errorf("%s of storage is used, want 1Gi", got)
	}
	// A status that says nothing about a quota is written while its usage is unknown, too.
	must[corev1.ResourceQuota](w, 200, "PATCH", quotaPath+"/gold/status", mergeType, `{"status":{"used":null}}`)
	for status, code := range map[string]int{`{"phase":"Lost"}`: 200, `{"currentVolumeAttributesClassName":"gold"}`: 403} {
		if res := w.do("PATCH", path+"/small/status", mergeType, `{"status":`+status+`}`); res.Code != code {
			t.Errorf("%s: %d %s, want %d", status, res.Code, res.Body, code)
		}
	}
}

func TestLimitRangeDefaultsAndLimits(t *testing.T) {
	w := start(t)
	withAccount(w)
	const path = "/api/v1/namespaces/default/limitranges"
	l := must[corev1.LimitRange](w, 201, "POST", path, jsonType, `{"metadata":{"name":"l"},"spec":{"limits":[
		{"type":"Container","min":{"cpu":"50m"},"max":{"cpu":"500m","memory":"500Mi"},"default":{"cpu":"400m"},"defaultRequest":{"cpu":"100m"},"maxLimitRequestRatio":{"cpu":"4"}},
		{"type":"Pod","max":{"memory":"500Mi"}}]}}`).Spec.Limits[0]
	if m := l.DefaultRequest.Memory(); m.String() != "500Mi" || l.Default.Memory().String() != "500Mi" || l.DefaultRequest.Cpu().String() != "100m" {
		t.Errorf("defaults of the LimitRange: %+v", l)
	}
	p := must[corev1.Pod](w, 201, "POST", podPath, jsonType, podWith("a", `{"requests":{"memory":"1Mi"}}`))
	r := p.Spec.Containers[0].Resources
	if got := fmt.Sprint(r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory()); got != "100m 1Mi 400m 500Mi" {
		t.Errorf("resources of the pod: %s", got)
	}
	if got, want := p.Annotations["kubernetes.io/limit-ranger"], "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for resources, want := range map[string]string{
		`{"requests":{"cpu":"10m"},"limits":{"cpu":"20m"}}`:       `pods "b" is forbidden: minimum cpu usage per Container is 50m, but request is 10m`,
		`{"limits":{"cpu":"2"}}`:                                  `pods "b" is forbidden: maximum cpu usage per Container is 500m, but limit is 2`,
		`{"requests":{"cpu":"50m"},"limits":{"cpu":"250m"}}`:      `pods "b" is forbidden: cpu max limit to request ratio per Container is 4, but provided ratio is 5.000000`,
		`{"requests":{"memory":"1Gi"},"limits":{"memory":"1Gi"}}`: `pods "b" is forbidden: [maximum memory usage per Container is 500Mi, but limit is 1Gi, maximum memory usage per Pod is 500Mi, but limit is 1Gi]`,
	} {
		if s := must[metav1.Status](w, 403, "POST", podPath, jsonType, podWith("b", resources)); !strings.HasPrefix(s.Message, want) {
			t.Errorf("%s: %s\nwant %s", resources, s.Message, want)
		}
	}
	must[metav1.Status](w, 200, "DELETE", path+"/l", "", "")
	if unnamed := must[corev1.LimitRange](w, 201, "POST", path, jsonType, `{"spec":{"limits":[]}}`); unnamed.Name == "" {
		t.Error("a LimitRange without a name got none")
	}
	must[corev1.LimitRange](w, 201, "PUT", path+"/put", jsonType, `{"metadata":{"name":"put"},"spec":{"limits":[]}}`)
	must[corev1.Pod](w, 201, "POST", podPath, jsonType, podWith("b", `{"limits":{"cpu":"2"}}`))
}
