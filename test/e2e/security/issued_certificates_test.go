package security

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	clientcsr "podium/pkg/client/csr"
	"podium/pkg/cluster/pki"
)

const nodeName = "node-a"

func nodeAddress(t *testing.T) string {
	t.Helper()
	n, err := client.For[*corev1.Node](admin).Get(t.Context(), nodeName)
	check(t, err)
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	t.Fatal("the node has no address")
	return ""
}

// browser returns an HTTP client with a client certificate. It does not verify servers, which
// these tests are not about.
func browser(t *testing.T, pair tls.Certificate) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func statusOf(c *http.Client, url string) (int, error) {
	resp, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// A revoked certificate of the cluster's CA is refused by the API server, the kubelet and the
// other daemons; and its open connections are closed.
func TestRevokedCertificateIsRefusedEverywhere(t *testing.T) {
	ca, err := pki.OpenAuthority(pkiDir, "ca", time.Now)
	check(t, err)
	dir := t.TempDir()
	check(t, ca.Issue(dir, "leaked", pki.Identity{Name: "leaked", Groups: []string{"system:masters"}}))
	pair, err := tls.LoadX509KeyPair(pki.Files(dir, "leaked"))
	check(t, err)
	cert, err := pki.ReadCertificate(dir, "leaked")
	check(t, err)
	thief := browser(t, pair)
	kubelet := "https://" + net.JoinHostPort(nodeAddress(t), "10250")
	doors := []string{server + "/api/v1/nodes", kubelet + "/pods", "https://127.0.0.1:10257/metrics", "https://127.0.0.1:10259/metrics"}
	for _, door := range doors {
		eventually(t, door+" opens before", func() error {
			code, err := statusOf(thief, door)
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("status %d", code)
			}
			return err
		})
	}
	watch, err := browser(t, pair).Get(server + "/api/v1/nodes?watch=true")
	check(t, err)
	defer watch.Body.Close()

	start := time.Now()
	_, err = ca.Revoke(filepath.Join(pkiDir, "ca.crl"), cert.SerialNumber)
	check(t, err)
	for _, door := range doors {
		eventually(t, door+" is closed", func() error {
			code, err := statusOf(thief, door)
			if err == nil && code != http.StatusUnauthorized {
				err = fmt.Errorf("status %d", code)
			}
			return err
		})
	}
	if _, err := io.Copy(io.Discard, watch.Body); err == nil {
		t.Error("the watch has ended as watches do")
	}
	t.Logf("refused everywhere %s after its revocation", time.Since(start).Round(10*time.Millisecond))
	if _, err := client.For[*corev1.Node](admin).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("another certificate: %v", err)
	}
}

// The API server's serving certificate is not accepted as a client certificate.
func TestTheAPIServersCertificateIsNoClients(t *testing.T) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(pkiDir, "apiserver.crt"), filepath.Join(pkiDir, "apiserver.key"))
	check(t, err)
	for _, door := range []string{server + "/api", "https://" + net.JoinHostPort(nodeAddress(t), "10250") + "/pods"} {
		if code, err := statusOf(browser(t, pair), door); err == nil && code != http.StatusUnauthorized {
			t.Errorf("%s answers %d", door, code)
		}
	}
}

// servingCSR returns a request for a serving certificate of the node.
func servingCSR(t *testing.T, dns []string, ips ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}}, DNSNames: dns}
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	check(t, err)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "abuse-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
}

func requestSigned(t *testing.T, c *client.Client, request *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	made, err := client.For[*certificatesv1.CertificateSigningRequest](c).Create(t.Context(), request)
	check(t, err)
	t.Cleanup(func() {
		_ = client.For[*certificatesv1.CertificateSigningRequest](admin).Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	})
	return made
}

func signed(t *testing.T, request *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csrs := client.For[*certificatesv1.CertificateSigningRequest](admin)
	var got *certificatesv1.CertificateSigningRequest
	eventually(t, "the request is signed", func() (err error) {
		got, err = csrs.Get(t.Context(), request.Name)
		if err == nil && len(got.Status.Certificate) == 0 {
			err = errNotYet
		}
		return err
	})
	return got
}

func notApproved(t *testing.T, what string, request *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	got, err := client.For[*certificatesv1.CertificateSigningRequest](admin).Get(t.Context(), request.Name)
	check(t, err)
	if len(got.Status.Conditions) > 0 || len(got.Status.Certificate) > 0 {
		t.Errorf("%s: %+v", what, got.Status.Conditions)
	}
}

// A stolen kubelet certificate obtains no serving certificate for loopback, the API server's
// names or a Service, whatever addresses the node reports; and clients of the API server do not
// trust the certificates that a node obtains.
func TestServingCertificateOfOthersIsNotApproved(t *testing.T) {
	thief, ctx := withCertificate(t, "kubelet"), t.Context()
	node, err := client.For[*corev1.Node](admin).Get(ctx, nodeName)
	check(t, err)
	own := nodeAddress(t)
	dns := []string{nodeName}
	api, err := client.For[*corev1.Service](admin).In("default").Get(ctx, "kubernetes")
	check(t, err)
	var refused []*certificatesv1.CertificateSigningRequest
	for _, claim := range []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeExternalIP, Address: api.Spec.ClusterIP},
		{Type: corev1.NodeExternalIP, Address: "169.254.169.254"}, {Type: corev1.NodeInternalDNS, Address: "kubernetes.default"}, {Type: corev1.NodeInternalDNS, Address: "localhost"},
	} {
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": append(node.DeepCopy().Status.Addresses, claim)}})
		check(t, err)
		_, err = client.For[*corev1.Node](thief).Patch(ctx, nodeName, types.MergePatchType, patch, "status")
		check(t, err)
		if net.ParseIP(claim.Address) != nil {
			refused = append(refused, requestSigned(t, thief, servingCSR(t, dns, own, claim.Address)))
		} else {
			refused = append(refused, requestSigned(t, thief, servingCSR(t, append(dns, claim.Address), own)))
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": node.Status.Addresses}})
	check(t, err)
	_, err = client.For[*corev1.Node](thief).Patch(ctx, nodeName, types.MergePatchType, patch, "status")
	check(t, err)
	granted := signed(t, requestSigned(t, thief, servingCSR(t, dns, own)))
	for _, request := range refused {
		notApproved(t, "a serving certificate for another", request)
	}
	chain, err := clientcsr.ParseChain(granted.Status.Certificate)
	check(t, err)
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("clients of the API server trust what a node gets signed")
	}
}

// A bootstrap token lets machines join, and cannot obtain the identity of a live node.
func TestABootstrapTokenIsNoLiveNode(t *testing.T) {
	secrets := client.For[*corev1.Secret](admin).In("kube-system")
	_, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abuse1"}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": "abuse1", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
			"auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
		},
	})
	check(t, err)
	t.Cleanup(func() { _ = secrets.Delete(context.Background(), "bootstrap-token-abuse1", metav1.DeleteOptions{}) })
	machine := withToken(t, "abuse1.0123456789abcdef")
	request := func(node string) *certificatesv1.CertificateSigningRequest {
		return csr(t, certificatesv1.KubeAPIServerClientKubeletSignerName, pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
			certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth)
	}
	taken := requestSigned(t, machine, request(nodeName))
	signed(t, requestSigned(t, machine, request("node-of-a-new-machine")))
	notApproved(t, "the certificate of a node that is alive", taken)
}
