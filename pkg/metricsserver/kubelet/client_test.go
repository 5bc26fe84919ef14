package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubelet serves h over TLS with a certificate for the name, and returns the Node that
// describes it as that of node, and the CA.
func kubelet(t *testing.T, node, certified string, h http.HandlerFunc) (*corev1.Node, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{certified}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of refused handshakes
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "no.such.host.invalid"}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
	}}, roots
}

func TestSample(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/resource" || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte("node_cpu_usage_seconds_total 2\nnode_memory_working_set_bytes 3\n"))
	}
	for name, row := range map[string]struct {
		reason    string
		certified string
		token     string
		handler   http.HandlerFunc
		want      string // of the error
	}{
		"Answers":       {"the kubelet's certificate names the node", "n", "secret", answer, ""},
		"AnotherNode":   {"another node's kubelet has taken the address", "other", "secret", answer, "certificate is valid for other, not n"},
		"NoCredentials": {"the kubelet refuses", "n", "wrong", answer, "401 Unauthorized"},
		"Hangs":         {"the request times out", "n", "secret", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
		"HangsLater": {"so does reading the answer", "n", "secret", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("node_cpu_usage_seconds_total 2\n"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "deadline exceeded"},
		"EndlessSeries": {"the answer is bounded", "n", "secret", func(w http.ResponseWriter, _ *http.Request) {
			line := []byte(strings.Repeat(strings.Repeat("x", 1000)+" 1\n", 16))
			for {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}, "longer than 4194304 bytes"},
		"EndlessLine": {"so is a line", "n", "secret", func(w http.ResponseWriter, _ *http.Request) {
			part := []byte(strings.Repeat("x", 16<<10))
			for {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		}, "longer than 4194304 bytes"},
		"Redirects": {"the kubelet cannot send the token elsewhere", "n", "secret", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		}, "302 Found"},
		"NoMetrics": {"it is no kubelet", "n", "secret", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "parse metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			node, roots := kubelet(t, "n", row.certified, row.handler)
			timeout := time.Minute // which a busy machine does not reach: 4 MiB are read through TLS
			if strings.HasPrefix(name, "Hangs") {
				timeout = 300 * time.Millisecond
			}
			c := New(Config{
				Roots: func() *x509.CertPool { return roots }, Token: func() (string, error) { return row.token, nil },
				AddressTypes: []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP}, StatusPort: true, Timeout: timeout,
			})
			defer c.Close()
			sample, err := c.Sample(t.Context(), node)
			switch {
			case row.want == "" && (err != nil || sample.Node == nil || sample.Node.CPU != 2):
				t.Errorf("%s: %+v, %v", row.reason, sample.Node, err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("%s: the error is %v, want %q", row.reason, err, row.want)
			}
		})
	}
}

// TestConnectionsAreOfOneNode: a connection that was made for a node is not used for
// another one at the same address.
func TestConnectionsAreOfOneNode(t *testing.T) {
	node, roots := kubelet(t, "n", "n", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("node_cpu_usage_seconds_total 2\n"))
	})
	dials := 0
	c := New(Config{
		Roots: func() *x509.CertPool { return roots }, AddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}, StatusPort: true, Timeout: time.Minute,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})
	defer c.Close()
	for range 2 {
		if _, err := c.Sample(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if dials != 1 {
		t.Errorf("two requests made %d connections", dials)
	}
	node.Name = "m"
	if _, err := c.Sample(t.Context(), node); err == nil {
		t.Error("the kubelet of n answered for m")
	}
}

func TestAddress(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::1"}}}}
	c := New(Config{Port: 10250, StatusPort: true, AddressTypes: []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalIP}})
	if address, port, err := c.address(node); err != nil || address != "fd00::1" || port != "10250" {
		t.Errorf("a node without a port in its status: %s, %s, %v", address, port, err)
	}
	c.cfg.AddressTypes = c.cfg.AddressTypes[:1]
	if _, _, err := c.address(node); err == nil {
		t.Error("a node without an address of the wanted types has one")
	}
}
