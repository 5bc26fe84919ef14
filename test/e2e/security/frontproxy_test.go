package security

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/cluster/pki"
)

// A proxy that the front-proxy CA certified under the allowed name says who the
// user is; no other certificate does. Extension API servers find that CA where
// upstream publishes it.
func TestOnlyTheFrontProxyNamesUsers(t *testing.T) {
	published, err := client.For[*corev1.ConfigMap](admin).In(metav1.NamespaceSystem).Get(t.Context(), "extension-apiserver-authentication")
	check(t, err)
	ca, err := os.ReadFile(filepath.Join(pkiDir, "front-proxy-ca.crt"))
	check(t, err)
	if published.Data["requestheader-client-ca-file"] != string(ca) || published.Data["requestheader-allowed-names"] != `["front-proxy-client"]` {
		t.Errorf("published: %v", published.Data)
	}
	authorities := map[string]*pki.Authority{}
	for _, name := range []string{"ca", "front-proxy-ca"} {
		authorities[name], err = pki.OpenAuthority(pkiDir, name, time.Now)
		check(t, err)
	}
	for _, c := range []struct{ authority, name, want string }{
		{"front-proxy-ca", "front-proxy-client", "jane"},
		{"front-proxy-ca", "another-client", ""},
		{"ca", "front-proxy-client", "front-proxy-client"}, // a client's certificate: its own name, whatever the header says
	} {
		dir := t.TempDir()
		check(t, authorities[c.authority].Issue(dir, "proxy", pki.Identity{Name: c.name}))
		if got := whoami(t, dir, http.Header{"X-Remote-User": {"jane"}}); got != c.want {
			t.Errorf("%s of %s: the server sees %q, want %q", c.name, c.authority, got, c.want)
		}
	}
}

// whoami returns the user that the server sees behind the certificate of the pair
// in dir and the header; "" for 401.
func whoami(t *testing.T, dir string, header http.Header) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "proxy.crt"), filepath.Join(dir, "proxy.key"))
	check(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	defer transport.CloseIdleConnections()
	body := strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
	check(t, err)
	r.Header = header
	r.Header.Set("Content-Type", jsonType)
	resp, err := transport.RoundTrip(r)
	check(t, err)
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return ""
	}
	var review authenticationv1.SelfSubjectReview
	check(t, json.NewDecoder(resp.Body).Decode(&review))
	return review.Status.UserInfo.Username
}
