package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

const (
	services     = "/api/v1/namespaces/default/services"
	serviceCIDRs = "/apis/networking.k8s.io/v1/servicecidrs"
	ipAddresses  = "/apis/networking.k8s.io/v1/ipaddresses"
)

func serviceNamed(name string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"ports":[{"port":80}]}}`
}

// Several servers allocate from the same ranges without a duplicate, until these are
// full, and each address is an IPAddress object.
func TestServersShareTheClusterIPs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := start(t)
		second, stop := oneOf(t, first.store, "b", "192.0.2.2:6443", 0)
		defer stop()
		settled()
		var mu sync.Mutex
		owners := map[string]string{}
		var all sync.WaitGroup
		for i := range 200 {
			name, handler := fmt.Sprint("s-", i), first.handler
			if i%2 == 0 {
				handler = second.Handler()
			}
			all.Go(func() {
				rec, r := httptest.NewRecorder(), httptest.NewRequest("POST", services, strings.NewReader(serviceNamed(name)))
				r.Header.Set("Content-Type", jsonType)
				handler.ServeHTTP(rec, r)
				var svc corev1.Service
				if err := json.Unmarshal(rec.Body.Bytes(), &svc); err != nil || rec.Code != 201 {
					t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
				}
				mu.Lock()
				defer mu.Unlock()
				owners[svc.Spec.ClusterIP] = name
			})
		}
		all.Wait()
		if len(owners) != 200 {
			t.Errorf("200 Services have %d addresses", len(owners))
		}
		for _, a := range must[networkingv1.IPAddressList](first, 200, "GET", ipAddresses, "", "").Items {
			want := owners[a.Name]
			if a.Name == "10.96.0.1" {
				want = "kubernetes"
			}
			if p := a.Spec.ParentRef; p.Resource != "services" || p.Namespace != "default" || p.Name != want || a.UID == "" {
				t.Errorf("%s: %+v", a.Name, a)
			}
			delete(owners, a.Name)
		}
		if len(owners) != 0 {
			t.Errorf("without an IPAddress: %v", owners)
		}
	})
}

// Addresses come from every ServiceCIDR that is ready, and from no other.
func TestServiceCIDRsAreRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		def := must[networkingv1.ServiceCIDR](w, 200, "GET", serviceCIDRs+"/kubernetes", "", "")
		if c := def.Status.Conditions; len(def.Spec.CIDRs) != 1 || def.Spec.CIDRs[0] != "10.96.0.0/16" || len(c) != 1 || c[0].Type != "Ready" || c[0].Message != "Kubernetes default Service CIDR is ready" {
			t.Errorf("%+v", def)
		}
		at := func(name, ip string) string {
			return `{"metadata":{"name":"` + name + `"},"spec":{"clusterIP":"` + ip + `","ports":[{"port":80}]}}`
		}
		create := func(code int, body string) { t.Helper(); must[any](w, code, "POST", services, jsonType, body) }
		create(422, at("a", "192.168.3.2"))
		must[any](w, 201, "POST", serviceCIDRs, jsonType, `{"metadata":{"name":"more"},"spec":{"cidrs":["192.168.3.0/30"]}}`)
		settled()
		create(201, at("a", "192.168.3.2"))
		create(422, at("b", "192.168.3.0")) // the network's own
		create(422, at("b", "192.168.3.3")) // broadcast
		must[any](w, 201, "POST", ipAddresses, jsonType, `{"metadata":{"name":"192.168.3.1"},"spec":{"parentRef":{"group":"example.com","resource":"things","name":"x"}}}`)
		create(422, at("b", "192.168.3.1")) // a user has it

		ready := func(name, status string) {
			must[any](w, 200, "PATCH", serviceCIDRs+"/"+name+"/status", mergeType,
				`{"status":{"conditions":[{"type":"Ready","status":"`+status+`","reason":"x","message":"","lastTransitionTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}]}}`)
			settled()
		}
		ready("kubernetes", "False")
		create(500, serviceNamed("c")) // the other is full
		ready("kubernetes", "True")
		create(201, serviceNamed("c"))
		must[any](w, 200, "DELETE", services+"/a", "", "")
		must[any](w, 404, "GET", ipAddresses+"/192.168.3.2", "", "")
		must[any](w, 200, "GET", ipAddresses+"/192.168.3.1", "", "")
	})
}
