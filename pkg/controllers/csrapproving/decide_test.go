package csrapproving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func parsed(t *testing.T, template x509.CertificateRequest) *x509.CertificateRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func node(org, name string) pkix.Name {
	return pkix.Name{Organization: strings.Fields(org), CommonName: name}
}

func TestWaysOfAClientCertificate(t *testing.T) {
	client := []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
	const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
	for name, row := range map[string]struct {
		reason  string
		user    string
		signer  string
		subject pkix.Name
		usages  []certificatesv1.KeyUsage
		dns     []string
		want    string
	}{
		"Joins":     {"a bootstrapper asks for a node", "system:bootstrap:abc", signer, node("system:nodes", "system:node:a"), client, nil, "nodeclient"},
		"Renews":    {"a node asks for itself", "system:node:a", signer, node("system:nodes", "system:node:a"), client, nil, "selfnodeclient nodeclient"},
		"Another":   {"a node asks for another one: only who may make nodes may", "system:node:b", signer, node("system:nodes", "system:node:a"), client, nil, "nodeclient"},
		"Masters":   {"nobody becomes an administrator by this door", "system:bootstrap:abc", signer, node("system:masters", "system:node:a"), client, nil, ""},
		"Both":      {"nor along with being a node", "system:bootstrap:abc", signer, node("system:nodes system:masters", "system:node:a"), client, nil, ""},
		"NoNode":    {"the name is no node's", "system:bootstrap:abc", signer, node("system:nodes", "root"), client, nil, ""},
		"Serves":    {"it is not to serve", "system:bootstrap:abc", signer, node("system:nodes", "system:node:a"), append(client, certificatesv1.UsageServerAuth), nil, ""},
		"Names":     {"it is valid for no host", "system:bootstrap:abc", signer, node("system:nodes", "system:node:a"), client, []string{"kubernetes"}, ""},
		"Signer":    {"another signer's are for people to approve", "system:node:a", certificatesv1.KubeAPIServerClientSignerName, node("system:nodes", "system:node:a"), client, nil, ""},
		"Enciphers": {"RSA keys encipher", "system:bootstrap:abc", signer, node("system:nodes", "system:node:a"), append(client, certificatesv1.UsageKeyEncipherment), nil, "nodeclient"},
		"SignsOnly": {"a usage is missing", "system:bootstrap:abc", signer, node("system:nodes", "system:node:a"), client[:1], nil, ""},
	} {
		c := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Username: row.user, SignerName: row.signer, Usages: row.usages}}
		var got []string
		for _, w := range ways(c, parsed(t, x509.CertificateRequest{Subject: row.subject, DNSNames: row.dns})) {
			got = append(got, w.subresource)
			if q := question(c, w); q.User != row.user || q.ResourceAttributes.Subresource != w.subresource || q.ResourceAttributes.Verb != "create" {
				t.Errorf("%s: asks %+v", name, q)
			}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s (%s): %v, want %s", name, row.reason, got, row.want)
		}
	}
}

func TestServingCertificatesAreTheNodesOwn(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "a"}, {Type: corev1.NodeInternalDNS, Address: "A.internal"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
	}}}
	own, ips := []string{"a", "a.internal"}, []string{"192.0.2.1", "2001:db8:0::1"}
	serving := []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature}
	for name, row := range map[string]struct {
		reason string
		user   string
		groups string
		cn     string
		usages []certificatesv1.KeyUsage
		dns    []string
		ips    []string
		want   string // of servingOf; or why not
	}{
		"Own":      {"what the kubelet asks for", "system:node:a", "system:nodes", "system:node:a", serving, own, ips, "a"},
		"Fewer":    {"a certificate that is not valid for an address of the node", "system:node:a", "system:nodes", "system:node:a", serving, own, ips[:1], "the node's address 2001:db8::1 is not asked for"},
		"More":     {"an address of somebody else", "system:node:a", "system:nodes", "system:node:a", serving, own, append(ips, "10.96.0.1"), "IP address 10.96.0.1 is not the node's"},
		"Name":     {"the apiserver's name", "system:node:a", "system:nodes", "system:node:a", serving, append(own, "kubernetes.default"), ips, `DNS name "kubernetes.default" is not the node's`},
		"NoName":   {"not valid for the node's name", "system:node:a", "system:nodes", "system:node:a", serving, own[1:], ips, `the node's name "a" is not asked for`},
		"Wildcard": {"it would be valid for every node", "system:node:a", "system:nodes", "system:node:a", serving, append(own, "*.internal"), ips, `DNS name "*.internal" is not the node's`},
		"Another":  {"a node asks in another's name", "system:node:b", "system:nodes", "system:node:a", serving, own, ips, ""},
		"NoNode":   {"a user of that name who is no node", "system:node:a", "staff", "system:node:a", serving, own, ips, ""},
		"Client":   {"it is not to be a client", "system:node:a", "system:nodes", "system:node:a", append(serving, certificatesv1.UsageClientAuth), own, ips, ""},
	} {
		c := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Username: row.user, Groups: strings.Fields(row.groups), SignerName: certificatesv1.KubeletServingSignerName, Usages: row.usages}}
		template := x509.CertificateRequest{Subject: node("system:nodes", row.cn), DNSNames: row.dns}
		for _, ip := range row.ips {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
		}
		r := parsed(t, template)
		got := servingOf(c, r)
		if got != "" {
			if err := checkNames(r, n); err != nil {
				got = err.Error()
			}
		}
		if got != row.want {
			t.Errorf("%s (%s): %q, want %q", name, row.reason, got, row.want)
		}
	}
}

// A kubelet says itself what its addresses are: it must not become the API
// server, or any Service, by that.
func TestNoServingCertificateForAService(t *testing.T) {
	services := []*corev1.Service{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "2001:db8::96:1"}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "headless"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
	}
	for name, row := range map[string]struct {
		reason string
		dns    string
		ip     string
		want   string
	}{
		"Machine":  {"names and addresses of machines", "svc1.kubernetes.example.com", "192.0.2.1", ""},
		"Short":    {"a node may have any name", "Kubernetes", "192.0.2.1", `DNS name "Kubernetes" is a Service's`},
		"InDNS":    {"the API server's, from every namespace", "kubernetes.default", "192.0.2.1", `DNS name "kubernetes.default" is a Service's`},
		"Service":  {"", "web.shop.svc", "192.0.2.1", `DNS name "web.shop.svc" is a Service's`},
		"InFull":   {"", "web.shop.svc.cluster.local", "192.0.2.1", `DNS name "web.shop.svc.cluster.local" is a Service's`},
		"Wildcard": {"", "*.shop.svc", "192.0.2.1", `DNS name "*.shop.svc" is a Service's`},
		"Address":  {"", "a", "10.96.0.1", "IP address 10.96.0.1 is that of the Service default/kubernetes"},
		"Second":   {"the other family", "a", "2001:db8::96:1", "IP address 2001:db8::96:1 is that of the Service default/kubernetes"},
	} {
		r := parsed(t, x509.CertificateRequest{Subject: node("system:nodes", "system:node:a"), DNSNames: []string{row.dns}, IPAddresses: []net.IP{net.ParseIP(row.ip)}})
		got := ""
		if err := checkServices(r, services); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("%s (%s): %q, want %q", name, row.reason, got, row.want)
		}
	}
}
