package security

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// sesame is the value of the secret that no attack may reveal.
const sesame = "sesame-5f1c9a7be2"

// caller sends requests to one server with one set of credentials. It does not follow
// redirects, does not retry, and does not turn status codes into errors.
type caller struct {
	http   *http.Client
	base   string // https://host:port
	header http.Header
	tls    *tls.Config
}

// answer is one response with its whole body.
type answer struct {
	code   int
	header http.Header
	body   string
}

func newCaller(t *testing.T, base string, trust *tls.Config, header http.Header) *caller {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{base: base, header: header, tls: trust, http: &http.Client{
		Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// overHTTP1 returns the same caller without HTTP/2, which has no Upgrade.
func (c *caller) overHTTP1(t *testing.T) *caller {
	t.Helper()
	cfg := c.tls.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	plain := newCaller(t, c.base, cfg, c.header)
	plain.http.Transport.(*http.Transport).TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	plain.http.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	return plain
}

func trusted(pairs ...tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: pairs}
}

// anonymous returns a caller of the API server without credentials.
func anonymous(t *testing.T) *caller { return newCaller(t, server, trusted(), nil) }

// bearer returns a caller of the API server with a token.
func bearer(t *testing.T, token string) *caller {
	return newCaller(t, server, trusted(), http.Header{"Authorization": {"Bearer " + token}})
}

// certified returns a caller of the API server with a client certificate.
func certified(t *testing.T, pair tls.Certificate) *caller {
	return newCaller(t, server, trusted(pair), nil)
}

// stolen returns a certificate from the cluster's files, with its key.
func stolen(t *testing.T, name string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(pkiDir, name+".crt"), filepath.Join(pkiDir, name+".key"))
	check(t, err)
	return pair
}

// send sends one request. The path is sent unchanged; header holds names and values
// alternately. A body without a Content-Type is JSON.
func (c *caller) send(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	path, req.URL.RawQuery, _ = strings.Cut(path, "?")
	if req.URL.Path, err = url.PathUnescape(path); err != nil {
		return answer{}, fmt.Errorf("path %q: %w", path, err)
	}
	req.URL.RawPath = path
	for k, v := range c.header {
		req.Header[k] = v
	}
	if body != "" {
		req.Header.Set("Content-Type", jsonType)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(data)}, err
}

// do is send for a request that must be answered.
func (c *caller) do(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	a, err := c.send(t.Context(), method, path, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// must is do for a request that must succeed.
func (c *caller) must(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	a := c.do(t, method, path, body, header...)
	if a.code/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, a.code, a.body)
	}
	return a
}

// reveals reports whether a text contains the secret, plain or base64-encoded.
func reveals(text string) bool {
	return strings.Contains(text, sesame) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(sesame)))
}

// administrator returns a caller with the cluster administrator's certificate.
func administrator(t *testing.T) *caller { return certified(t, stolen(t, "admin")) }

// victim creates a namespace with a Secret and a ConfigMap named "victim", both with sesame in
// them, and returns the namespace's name.
func victim(t *testing.T) string {
	t.Helper()
	ns := space(t)
	_, err := client.For[*corev1.Secret](admin).In(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "victim"}, StringData: map[string]string{"key": sesame},
	})
	check(t, err)
	_, err = client.For[*corev1.ConfigMap](admin).In(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "victim"}, Data: map[string]string{"key": sesame},
	})
	check(t, err)
	return ns
}

func permit(verbs, resources string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: strings.Fields(verbs), Resources: strings.Fields(resources)}
}

// grant creates a role with these rules in a namespace and binds it to the account "default"
// there. It returns once the API server allows the account the access of the first
// rule.
func grant(t *testing.T, ns string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	grantTo(t, ns, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "default"}, rules...)
}

// grantTo is grant for any account or user.
func grantTo(t *testing.T, ns string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	user := to.Name
	if to.Kind == rbacv1.ServiceAccountKind {
		user = "system:serviceaccount:" + to.Namespace + ":" + to.Name
	}
	meta := metav1.ObjectMeta{GenerateName: "granted-"}
	role, err := client.For[*rbacv1.Role](admin).In(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules})
	check(t, err)
	_, err = client.For[*rbacv1.RoleBinding](admin).In(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{to},
	})
	check(t, err)
	resource, sub, _ := strings.Cut(rules[0].Resources[0], "/")
	review := fmt.Sprintf(`{"spec":{"user":%q,"resourceAttributes":{"namespace":%q,"verb":%q,"group":%q,"resource":%q,"subresource":%q,"name":%q}}}`,
		user, ns, rules[0].Verbs[0], rules[0].APIGroups[0], resource, sub, strings.Join(rules[0].ResourceNames, ""))
	root := administrator(t)
	eventually(t, "the role is known", func() error {
		if a := root.do(t, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review); !strings.Contains(a.body, `"allowed":true`) {
			return errNotYet
		}
		return nil
	})
}

// bindRole binds a cluster role in a namespace to the account "default" there.
func bindRole(t *testing.T, ns, role string) {
	t.Helper()
	_, err := client.For[*rbacv1.RoleBinding](admin).In(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "bound-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "default"}},
	})
	check(t, err)
	c := bearer(t, token(t, ns, authenticationv1.TokenRequestSpec{}))
	eventually(t, "the role is known", func() error {
		if c.do(t, "GET", "/api/v1/namespaces/"+ns+"/pods", "").code != http.StatusOK {
			return errNotYet
		}
		return nil
	})
}

// accountWith creates a namespace whose account "default" has these rules there, and nothing
// elsewhere. It returns the namespace and a token.
func accountWith(t *testing.T, rules ...rbacv1.PolicyRule) (ns, bearer string) {
	t.Helper()
	ns = space(t)
	grant(t, ns, rules...)
	return ns, token(t, ns, authenticationv1.TokenRequestSpec{})
}

// everything is the rule of an account with all permissions in its namespace.
var everything = permit("*", "*")

// host returns the API server's host:port.
func host(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(server)
	check(t, err)
	return u.Host
}

// rawRequest sends bytes to the API server over TLS and returns everything received until the
// server closes the connection or has answered a last request, which must contain "Connection:
// close".
func rawRequest(t *testing.T, text string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", host(t), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"http/1.1"}})
	check(t, err)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	go io.WriteString(conn, text) // the server may close before it has read everything
	data, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server neither answers nor closes; it sent %.300q", data)
	}
	return string(data)
}

// responses parses the responses on one HTTP/1.1 connection.
func responses(text string) []answer {
	in := bufio.NewReader(strings.NewReader(text))
	var out []answer
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return out
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		out = append(out, answer{resp.StatusCode, resp.Header, string(body)})
	}
}

// nodeIP returns the address of the cluster's node.
func nodeIP(t *testing.T) string {
	t.Helper()
	node, err := client.For[*corev1.Node](admin).Get(t.Context(), "node-a")
	check(t, err)
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	t.Fatal("the node has no internal address")
	return ""
}
