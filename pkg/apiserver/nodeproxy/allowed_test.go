package nodeproxy

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// oneNode is a backend in which every node has the same address.
type oneNode struct {
	registry.Backend
	kind    corev1.NodeAddressType
	address string
	port    int32
}

func (o oneNode) Get(context.Context, schema.GroupVersionResource, string, string) (scheme.Object, error) {
	n := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: o.kind, Address: o.address}}}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = o.port
	return n, nil
}

// A kubelet writes its own node's addresses. It must not make the server
// connect, with the server's certificate, to arbitrary hosts.
func TestNodesCannotSayTheyAreHere(t *testing.T) {
	here := httptest.NewTLSServer(http.NotFoundHandler())
	defer here.Close()
	port := netip.MustParseAddrPort(here.Listener.Addr().String()).Port()
	own := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6443")}
	for name, tc := range map[string]struct {
		reason   string
		kind     corev1.NodeAddressType
		address  string
		port     int32
		anywhere bool
		path     string
		code     int
		want     string
	}{
		"loopback":            {address: "127.0.0.1", code: 400, want: "address not allowed"},
		"loopback of IPv6":    {address: "::1", code: 400, want: "address not allowed"},
		"mapped":              {address: "::ffff:127.0.0.1", code: 400, want: "address not allowed"},
		"link-local":          {reason: "clouds tell secrets there", address: "169.254.169.254", code: 400, want: "address not allowed"},
		"link-local of IPv6":  {address: "fe80::1", code: 400, want: "address not allowed"},
		"nowhere":             {address: "0.0.0.0", code: 400, want: "address not allowed"},
		"this server":         {address: "192.0.2.1", port: 6443, code: 400, want: "address not allowed"},
		"a name for it":       {reason: "seen only when it is dialled", kind: corev1.NodeHostName, address: "localhost", port: int32(port), code: 503, want: "address not allowed"},
		"another port by it":  {reason: "a name is no address to forward to", kind: corev1.NodeHostName, address: "localhost", path: "n:80", code: 400, want: "address not allowed"},
		"where it is allowed": {reason: "the flag lets it through: what fails is the certificate", kind: corev1.NodeHostName, address: "localhost", port: int32(port), anywhere: true, code: 503, want: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Config{Own: own, Anywhere: tc.anywhere})
			defer p.Close()
			if tc.kind == "" {
				tc.kind = corev1.NodeInternalIP
			}
			if tc.path == "" {
				tc.path = "n"
			}
			rec := httptest.NewRecorder()
			h := p.Streams().NodeProxy(oneNode{kind: tc.kind, address: tc.address, port: tc.port}, "", tc.path, "/pods")
			h.ServeHTTP(rec, httptest.NewRequest("GET", "/api/v1/nodes/n/proxy/pods", nil))
			if rec.Code != tc.code || !strings.Contains(rec.Body.String(), tc.want) {
				t.Errorf("%d %s, want %d %s; %s", rec.Code, rec.Body, tc.code, tc.want, tc.reason)
			}
		})
	}
}

// A node that claims another node's address does not receive requests for that
// node, even over an open connection.
func TestConnectionsAreANodesOwn(t *testing.T) {
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.Host)) }))
	defer kubelet.Close()
	roots := x509.NewCertPool()
	roots.AddCert(kubelet.Certificate())
	dialled := 0
	p := New(Config{
		Authority: func() *x509.CertPool { return roots },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled++
			if address != "[2001:db8::1]:10250" {
				t.Errorf("%s is dialled", address)
			}
			return (&net.Dialer{}).DialContext(ctx, network, kubelet.Listener.Addr().String())
		},
	})
	defer p.Close()
	get := func(node string) (string, error) {
		r, err := http.NewRequest("GET", "https://[2001:db8::1]:10250/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := kubeletTransport{p.kubelets, node}.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	}
	for range 2 { // the name in the test certificate
		if host, err := get("example.com"); err != nil || host != "[2001:db8::1]:10250" {
			t.Fatalf("Host %q, %v", host, err)
		}
	}
	if dialled != 1 {
		t.Errorf("a node's connection was not used again: %d were dialled", dialled)
	}
	if _, err := get("a"); err == nil || !strings.HasSuffix(err.Error(), "not a") {
		t.Errorf("another node at this address: %v", err)
	}
}
