package csrapproving

import (
	"crypto/x509"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func nodeAt(name string, labels map[string]string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// A kubelet reports its addresses itself: it must not be able to impersonate the API server,
// another node or a Service.
func TestServingCertificatesOfOthersAreNotApproved(t *testing.T) {
	all := surroundings{
		services: []*corev1.Service{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "2001:db8::96:1"}}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "headless"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, ExternalIPs: []string{"192.0.2.1"}}},
		},
		slices:  []*discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.10"}}}}},
		servers: []string{"https://192.0.2.10:6443", "https://api.example.com:6443", "https://192.0.2.100:6443", "https://[2001:db8::64]:6443"},
		nodes:   []*corev1.Node{nodeAt("a", nil, "192.0.2.1"), nodeAt("b", nil, "192.0.2.2", "b.internal"), nodeAt("Upper", nil, "2001:db8::2")},
	}
	for name, row := range map[string]struct {
		reason string
		dns    string
		ip     string
		want   string
	}{
		"Machine":    {"names and addresses of machines", "svc1.kubernetes.example.com", "192.0.2.1", ""},
		"Short":      {"a node may have any name", "Kubernetes", "192.0.2.1", `DNS name "kubernetes" is a Service's`},
		"InDNS":      {"the API server's, from every namespace", "kubernetes.default", "192.0.2.1", `DNS name "kubernetes.default" is a Service's`},
		"Service":    {"", "web.shop.svc", "192.0.2.1", `DNS name "web.shop.svc" is a Service's`},
		"InFull":     {"", "web.shop.svc.cluster.local", "192.0.2.1", `DNS name "web.shop.svc.cluster.local" is a Service's`},
		"Wildcard":   {"", "*.shop.example", "192.0.2.1", `DNS name "*.shop.example" is not the name of one machine`},
		"Localhost":  {"", "LOCALHOST", "192.0.2.1", `DNS name "localhost" is every machine's own`},
		"Domain":     {"", "localhost.localdomain", "192.0.2.1", `DNS name "localhost.localdomain" is every machine's own`},
		"Endpoint":   {"the control-plane endpoint", "api.example.com", "192.0.2.1", `DNS name "api.example.com" is the API server's`},
		"OtherName":  {"", "b", "192.0.2.1", `DNS name "b" is also that of the node b`},
		"OtherAlias": {"a name in another node's status", "b.internal", "192.0.2.1", `DNS name "b.internal" is also that of the node b`},
		"OtherCase":  {"", "upper", "192.0.2.1", `DNS name "upper" is also that of the node Upper`},
		"Address":    {"", "a", "10.96.0.1", "IP address 10.96.0.1 is that of the Service default/kubernetes"},
		"Second":     {"the other family", "a", "2001:db8::96:1", "IP address 2001:db8::96:1 is that of the Service default/kubernetes"},
		"Server":     {"an endpoint of default/kubernetes", "a", "192.0.2.10", "IP address 192.0.2.10 is the API server's"},
		"Virtual":    {"the address of a load balancer before the API servers", "a", "192.0.2.100", "IP address 192.0.2.100 is the API server's"},
		"VirtualSix": {"", "a", "2001:db8::64", "IP address 2001:db8::64 is the API server's"},
		"OtherNode":  {"", "a", "192.0.2.2", "IP address 192.0.2.2 is also that of the node b"},
		"Mapped":     {"IPv4 written as IPv6", "a", "::ffff:192.0.2.2", "IP address 192.0.2.2 is also that of the node b"},
		"Loopback":   {"", "a", "127.0.0.53", "IP address 127.0.0.53 is not the address of one machine"},
		"LoopSix":    {"", "a", "::1", "IP address ::1 is not the address of one machine"},
		"Any":        {"", "a", "0.0.0.0", "IP address 0.0.0.0 is not the address of one machine"},
		"Multicast":  {"", "a", "224.0.0.1", "IP address 224.0.0.1 is not the address of one machine"},
		"Metadata":   {"the cloud's metadata address", "a", "169.254.169.254", "IP address 169.254.169.254 is not the address of one machine"},
		"LinkLocal":  {"", "a", "fe80::1", "IP address fe80::1 is not the address of one machine"},
		"Broadcast":  {"", "a", "255.255.255.255", "IP address 255.255.255.255 is not the address of one machine"},
	} {
		r := parsed(t, x509.CertificateRequest{Subject: node("system:nodes", "system:node:a"), DNSNames: []string{row.dns}, IPAddresses: []net.IP{net.ParseIP(row.ip)}})
		got := ""
		if err := all.check(r, all.nodes[0]); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("%s (%s): %q, want %q", name, row.reason, got, row.want)
		}
	}
}

// A kubelet beside the API server shares its address; an administrator confirms that with
// the label.
func TestAControlPlaneNodeHasTheAddressOfItsServer(t *testing.T) {
	plane := nodeAt("a", map[string]string{controlPlaneLabel: ""}, "192.0.2.10")
	all := surroundings{
		slices:  []*discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.10"}}}}},
		servers: []string{"https://192.0.2.10:6443"}, nodes: []*corev1.Node{plane},
	}
	r := parsed(t, x509.CertificateRequest{Subject: node("system:nodes", "system:node:a"), DNSNames: []string{"a"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.10")}})
	if err := all.check(r, plane); err != nil {
		t.Error(err)
	}
	plane.Labels = nil
	if all.check(r, plane) == nil {
		t.Error("a node without the label has the API server's address")
	}
}
