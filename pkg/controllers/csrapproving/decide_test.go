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
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
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
		want   string // result of servingOf, or the error
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

// A bootstrap token must not obtain the certificate of a live node.
func TestNodesThatAreAlive(t *testing.T) {
	now := time.Unix(1e9, 0)
	lease := func(age time.Duration) *coordinationv1.Lease {
		renewed, seconds := metav1.NewMicroTime(now.Add(-age)), int32(40)
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: &seconds}}
	}
	for name, row := range map[string]struct {
		reason string
		ready  corev1.ConditionStatus
		lease  *coordinationv1.Lease
		want   bool
	}{
		"Ready":    {"an ordinary node", corev1.ConditionTrue, lease(time.Second), true},
		"Believed": {"it stopped, and the grace period is not over", corev1.ConditionTrue, lease(time.Hour), true},
		"NotReady": {"the kubelet works, its pod network does not", corev1.ConditionFalse, lease(39 * time.Second), true},
		"Lost":     {"the machine was reinstalled, or its certificate has expired", corev1.ConditionUnknown, lease(41 * time.Second), false},
		"Silent":   {"a Node object that no kubelet reports on", corev1.ConditionUnknown, nil, false},
		"Empty":    {"a Lease that was never renewed", corev1.ConditionUnknown, &coordinationv1.Lease{}, false},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: row.ready}}}}
		if got := alive(n, row.lease, now); got != row.want {
			t.Errorf("%s (%s): alive is %v", name, row.reason, got)
		}
	}
}
