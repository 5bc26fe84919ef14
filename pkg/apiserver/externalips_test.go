package apiserver_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
)

const (
	servicesPath = "/api/v1/namespaces/default/services"
	denied       = "Use of external IPs is denied by admission control"
)

func serviceWith(name, externalIPs string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"externalIPs":[%s],"ports":[{"port":6443}]}}`, name, externalIPs)
}

// withNode creates a Node with two addresses and a pod CIDR.
func withNode(w *world) {
	w.Helper()
	must[corev1.Node](w, 201, "POST", "/api/v1/nodes", jsonType, `{"metadata":{"name":"n"},"spec":{"podCIDR":"10.244.0.0/24","podCIDRs":["10.244.0.0/24"]}}`)
	must[corev1.Node](w, 200, "PATCH", "/api/v1/nodes/n/status", mergeType,
		`{"status":{"addresses":[{"type":"InternalIP","address":"203.0.113.10"},{"type":"Hostname","address":"n"}]}}`)
}

func TestExternalIPsAreDeniedByDefault(t *testing.T) {
	w := start(t)
	for _, ip := range []string{`"203.0.113.77"`, `"203.0.113.10"`, `"10.96.0.1"`, `"2001:db8::1"`} {
		status := must[metav1.Status](w, 403, "POST", servicesPath, jsonType, serviceWith("a", ip))
		if want := `services "a" is forbidden: ` + denied; status.Message != want {
			t.Errorf("%s: %q, want %q", ip, status.Message, want)
		}
	}
	must[corev1.Service](w, 201, "POST", servicesPath, jsonType, serviceWith("a", ""))
	for _, tc := range []struct{ name, contentType, body string }{
		{"/a", mergeType, `{"spec":{"externalIPs":["203.0.113.77"]}}`},
		{"/a?fieldManager=m&force=true", applyType, serviceManifest("a", "203.0.113.77")},
		{"/new?fieldManager=m", applyType, serviceManifest("new", "203.0.113.77")},
	} {
		if s := must[metav1.Status](w, 403, "PATCH", servicesPath+tc.name, tc.contentType, tc.body); !strings.Contains(s.Message, denied) {
			t.Errorf("%s: %s", tc.name, s.Message)
		}
	}
}

func serviceManifest(name, ip string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"externalIPs":[%q],"ports":[{"port":6443}]}}`, name, ip)
}

// External IPs that a Service had before the plugin was enabled stay, and may
// be removed.
func TestExternalIPsOfBeforeStay(t *testing.T) {
	w := start(t, func(c *apiserver.Config) { c.Admission.Disable = []string{"DenyServiceExternalIPs"} })
	must[corev1.Service](w, 201, "POST", servicesPath, jsonType, serviceWith("a", `"203.0.113.1","203.0.113.2"`))
	w.stop()
	store := w.store
	w = start(t, func(c *apiserver.Config) { c.Store = store })
	must[corev1.Service](w, 200, "PATCH", servicesPath+"/a", mergeType, `{"metadata":{"labels":{"a":"b"}}}`)
	must[metav1.Status](w, 403, "PATCH", servicesPath+"/a", mergeType, `{"spec":{"externalIPs":["203.0.113.1","203.0.113.3"]}}`)
	must[corev1.Service](w, 200, "PATCH", servicesPath+"/a", mergeType, `{"spec":{"externalIPs":["203.0.113.2"]}}`)
	must[metav1.Status](w, 403, "PATCH", servicesPath+"/a", mergeType, `{"spec":{"externalIPs":["203.0.113.1"]}}`)
	must[corev1.Service](w, 200, "PATCH", servicesPath+"/a", mergeType, `{"spec":{"externalIPs":[]}}`)
}

func TestExternalIPRanges(t *testing.T) {
	w := start(t, func(c *apiserver.Config) {
		c.Admission.ExternalIPRanges = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::/64")}
		c.Advertise = netip.MustParseAddrPort("192.0.2.1:6443")
	})
	withNode(w)
	must[any](w, 201, "POST", serviceCIDRs, jsonType, `{"metadata":{"name":"more"},"spec":{"cidrs":["198.51.100.0/24"]}}`)
	for name, tc := range map[string]struct {
		reason, ip, want string
	}{
		"inside":             {ip: "203.0.113.77"},
		"inside-6":           {ip: "2001:db8::7"},
		"outside":            {ip: "2001:db9::7", want: "2001:db9::7 is in none of the ranges of --service-external-ip-ranges"},
		"node":               {ip: "203.0.113.10", want: "203.0.113.10 is an address of node n", reason: "host listeners, the kubelet's port too"},
		"mapped":             {ip: "::ffff:203.0.113.10", want: "203.0.113.10 is an address of node n"},
		"api-server":         {ip: "192.0.2.1", want: "192.0.2.1 is an address of the API server", reason: "port 6443 of a control plane without a Node"},
		"first-service":      {ip: "10.96.0.1", want: "10.96.0.1 is in the Service range 10.96.0.0/16", reason: "the cluster IP of default/kubernetes"},
		"some-service":       {ip: "10.96.200.3", want: "is in the Service range"},
		"other-service":      {ip: "198.51.100.7", want: "is in the Service range 198.51.100.0/24"},
		"pod":                {ip: "10.244.0.9", want: "10.244.0.9 is in the pod range 10.244.0.0/24 of node n"},
		"loopback":           {ip: "127.0.0.1", want: "may not be in the loopback range"},
		"link-local":         {ip: "169.254.169.254", want: "may not be in the link-local range"},
		"multicast":          {ip: "239.1.2.3", want: "239.1.2.3 is a multicast address"},
		"zoned":              {ip: "2001:db8::7%eth0", want: "must be a valid IP address"},
		"mapped-loopback":    {ip: "::ffff:127.0.0.1", want: "may not be in the loopback range"},
		"broadcast":          {ip: "255.255.255.255", want: "255.255.255.255 is the broadcast address"},
		"mapped-unspecified": {ip: "::ffff:0.0.0.0", want: "may not be unspecified"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := w.do("POST", servicesPath, jsonType, serviceWith(name, fmt.Sprintf("%q", tc.ip)))
			if tc.want == "" && rec.Code != 201 || tc.want != "" && (rec.Code != 403 && rec.Code != 422 || !strings.Contains(rec.Body.String(), tc.want)) {
				t.Errorf("%d %s, want %q; %s", rec.Code, rec.Body, tc.want, tc.reason)
			}
		})
	}
}

// A namespace's user cannot set the address of a load balancer: it is in the
// status, which needs a permission of its own.
func TestLoadBalancerAddressesAreNotTheUsers(t *testing.T) {
	w := start(t)
	const ingress = `"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.10"}]}}`
	made := must[corev1.Service](w, 201, "POST", servicesPath, jsonType, `{"metadata":{"name":"a"},"spec":{"type":"LoadBalancer","loadBalancerIP":"203.0.113.10","ports":[{"port":6443}]},`+ingress+`}`)
	if len(made.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("created with %+v", made.Status)
	}
	changed := must[corev1.Service](w, 200, "PATCH", servicesPath+"/a", mergeType, `{`+ingress+`}`)
	if len(changed.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("updated to %+v", changed.Status)
	}
}
