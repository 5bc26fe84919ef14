package security

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

const (
	jsonType  = "application/json"
	yamlType  = "application/yaml"
	protoType = "application/vnd.kubernetes.protobuf"
	mergeType = "application/merge-patch+json"
	smpType   = "application/strategic-merge-patch+json"
	applyType = "application/apply-patch+yaml"
)

// tenant is the administrator of one namespace, a service account of it.
type tenant struct {
	*testing.T
	namespace, token string
	http             *http.Client
}

func newTenant(t *testing.T) *tenant {
	t.Helper()
	ns := space(t)
	_, err := client.For[*rbacv1.RoleBinding](admin).In(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: ns}},
	})
	check(t, err)
	a := &tenant{t, ns, token(t, ns, authenticationv1.TokenRequestSpec{}), tenantClient()}
	t.Cleanup(a.http.CloseIdleConnections)
	eventually(t, "the tenant may read", func() error {
		if code, text := a.do("GET", a.path("configmaps"), "", ""); code != http.StatusOK {
			return fmt.Errorf("%d %.200s", code, text)
		}
		return nil
	})
	return a
}

// tenantClient returns a client that trusts the cluster's certificates and uses HTTP/2.
func tenantClient() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, ForceAttemptHTTP2: true}}
}

// path returns the path of a core resource in the tenant's namespace.
func (a *tenant) path(resource string) string {
	return "/api/v1/namespaces/" + a.namespace + "/" + resource
}

func (a *tenant) request(method, path, contentType, body string) *http.Request {
	ctx := context.Background()
	if a.T != nil { // nil in the observer
		ctx = a.Context()
	}
	r, err := http.NewRequestWithContext(ctx, method, server+path, strings.NewReader(body))
	if err != nil {
		panic(err) // invalid arguments of the test
	}
	r.Header.Set("Authorization", "Bearer "+a.token)
	r.Header.Set("Content-Type", contentType)
	return r
}

// do sends one request and returns the status, 0 if there was no response, and the body.
func (a *tenant) do(method, path, contentType, body string) (int, string) {
	resp, err := a.http.Do(a.request(method, path, contentType, body))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// wants is do with an expected status.
func (a *tenant) wants(code int, method, path, contentType, body string) {
	a.Helper()
	if got, text := a.do(method, path, contentType, body); got != code {
		a.Errorf("%s %s: %d, want %d: %.300s", method, path, got, code, text)
	}
}

// unharmed checks that the API server still works for others and that its memory stays below the limit
// at which the kernel would kill it.
func unharmed(t *testing.T, other *tenant) {
	t.Helper()
	other.wants(http.StatusOK, "GET", other.path("configmaps"), "", "")
	other.wants(http.StatusOK, "GET", "/readyz", "", "")
	node := withCertificate(t, "kubelet")
	if _, _, err := node.Do(t.Context(), client.Request{Path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-a"}); err != nil {
		t.Errorf("the node: %v", err)
	}
	if peak, limit := memoryPeak(t), memoryLimit(t); peak > limit {
		t.Errorf("the API server has used %d MB; the limit is %d MB", peak>>20, limit>>20)
	}
}

// raw is an HTTP/2 connection of a tenant that violates the protocol.
type raw struct {
	*tenant
	conn   net.Conn
	framer *http2.Framer
	next   uint32
	block  bytes.Buffer
	enc    *hpack.Encoder
}

// dial opens a connection on which the server may send window bytes per response.
func (a *tenant) dial(window uint32) (*raw, error) {
	to, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	conn, err := tls.Dial("tcp", to.Host, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"h2"}})
	if err != nil {
		return nil, err
	}
	r := &raw{tenant: a, conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	r.enc = hpack.NewEncoder(&r.block)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	return r, r.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
}

// open starts n requests, without the end of their bodies if they are POSTs.
func (r *raw) open(n int, method, path string) error {
	for range n {
		r.block.Reset()
		for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "x"}, {":path", path}, {"authorization", "Bearer " + r.token}, {"content-type", jsonType}} {
			if err := r.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				return err
			}
		}
		err := r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: r.next, BlockFragment: r.block.Bytes(), EndHeaders: true, EndStream: method == "GET"})
		if err != nil {
			return err
		}
		r.next += 2
	}
	return nil
}
