package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// discard is a ResponseWriter that discards everything.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

func (w *world) drop(method, path, contentType, accept string, body io.Reader) {
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", accept)
	d := &discard{header: http.Header{}}
	w.handler.ServeHTTP(d, r)
	if d.code >= 300 {
		w.Fatalf("%s %s: %d", method, path, d.code)
	}
}

const nodes = "/api/v1/nodes"

func benchNode(b *testing.B, s *scheme.Scheme, i int) string {
	data, err := s.Encode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("node-%05d", i),
			Labels: map[string]string{"kubernetes.io/hostname": fmt.Sprintf("node-%05d", i), "zone": fmt.Sprint(i % 3), "rack": fmt.Sprintf("rack-%d", i%100)},
		},
		Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24", ProviderID: strings.Repeat("x", 40)},
	}, scheme.Protobuf)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

func BenchmarkList10000(b *testing.B) {
	w, s := start(b), scheme.New()
	for i := range 10000 {
		w.drop("POST", nodes, protoType, protoType, strings.NewReader(benchNode(b, s, i)))
	}
	for _, accept := range []string{protoType, jsonType} {
		b.Run(accept, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.drop("GET", nodes, "", accept, nil)
			}
		})
	}
	b.Run("of one label", func(b *testing.B) {
		for b.Loop() {
			w.drop("GET", nodes+"?labelSelector=kubernetes.io/hostname%3Dnode-00042", "", protoType, nil)
		}
	})
	b.Run("of one percent by label", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.drop("GET", nodes+"?labelSelector=rack%3Drack-42", "", protoType, nil)
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.drop("GET", nodes+"/node-00042", "", protoType, nil)
		}
	})
}

func BenchmarkWrites(b *testing.B) {
	w := start(b)
	b.Run("create", func(b *testing.B) {
		b.ReportAllocs()
		body := benchConfigMap(b)
		for b.Loop() {
			w.drop("POST", cms, protoType, protoType, strings.NewReader(body))
		}
	})
	must[any](w, 201, "POST", cms, jsonType, configMap("x"))
	b.Run("merge patch", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			w.drop("PATCH", cms+"/x", mergeType, protoType, strings.NewReader(fmt.Sprintf(`{"data":{"a":"%d"}}`, i)))
		}
	})
}

func benchConfigMap(b *testing.B) string {
	data, err := scheme.New().Encode(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cm-"}, Data: map[string]string{"a": strings.Repeat("x", 200)},
	}, scheme.Protobuf)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// BenchmarkAccess measures what RBAC authorization and audit cost a client over
// TLS, against a server without them. The user is bound to a role in the
// namespace, as are many others. Requests alternate between the servers and
// medians are compared, so that load on the machine affects both alike.
func BenchmarkAccess(b *testing.B) {
	body := benchConfigMap(b)
	off, on := overTLS(start(b, allowAll)), overTLS(start(b, auditToFile(b)))
	bindUsers(on.world, 200)
	for _, c := range []*remote{off, on} {
		must[corev1.ConfigMap](c.world, 201, "POST", cms, jsonType, configMap("x"))
		for c.do("GET", cms+"/x", "", "", "X-User", "user-100").Code != http.StatusOK {
			time.Sleep(time.Millisecond) // until the roles are synced
		}
	}
	for _, row := range []struct {
		name string
		once func(c *remote)
	}{
		{"get", func(c *remote) { c.send("GET", cms+"/x", "", "") }},
		{"create", func(c *remote) { c.send("POST", cms, protoType, body) }},
	} {
		b.Run(row.name, func(b *testing.B) {
			took := map[*remote][]time.Duration{}
			order := []*remote{off, on}
			for b.Loop() {
				order[0], order[1] = order[1], order[0]
				for _, c := range order {
					began := time.Now()
					row.once(c)
					took[c] = append(took[c], time.Since(began))
				}
			}
			median := func(c *remote) float64 {
				slices.Sort(took[c])
				return float64(took[c][len(took[c])/2].Nanoseconds())
			}
			b.ReportMetric(median(off), "off-ns/op")
			b.ReportMetric(median(on), "on-ns/op")
			b.ReportMetric(median(on)/median(off), "ratio")
		})
	}
}

// bindUsers binds n users to a role, with one binding for each.
func bindUsers(w *world, n int) {
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
	must[any](w, 201, "POST", roles, jsonType, `{"metadata":{"name":"editor"},"rules":[
		{"apiGroups":["apps"],"resources":["deployments"],"verbs":["*"]},
		{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","watch","create"]}]}`)
	for i := range n {
		name := fmt.Sprintf("user-%d", i)
		must[any](w, 201, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", jsonType,
			`{"metadata":{"name":"`+name+`"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"`+name+`"}],
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"editor"}}`)
	}
}

// remote is a client of a server.
type remote struct {
	*world
	url    string
	client *http.Client
}

func overTLS(w *world) *remote {
	server := httptest.NewUnstartedServer(w.handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	w.Cleanup(server.Close)
	return &remote{w, server.URL, server.Client()}
}

func (c *remote) send(method, path, contentType, body string) {
	r, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", protoType)
	r.Header.Set("X-User", "user-100")
	resp, err := c.client.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 300 {
		c.Fatalf("%s %s: %s, %v", method, path, resp.Status, err)
	}
}

// allowAll configures a server without authorization.
func allowAll(c *apiserver.Config) {
	c.Authorizer = authz.Func(func(context.Context, *request.User, *request.Info) (authz.Decision, string) { return authz.Allow, "" })
}

// auditToFile configures the audit policy and log of a new cluster.
func auditToFile(b *testing.B) func(*apiserver.Config) {
	file, err := os.OpenFile(filepath.Join(b.TempDir(), "audit.log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	return func(c *apiserver.Config) {
		c.Audit = audit.New(audit.Config{
			Policy: &audit.Policy{Rules: []audit.Rule{{Level: audit.LevelMetadata}}, OmitStages: []audit.Stage{audit.StageRequestReceived}},
			Scheme: c.Scheme, Log: c.Log,
			Backends: []audit.BackendConfig{{Name: "log", Backend: &audit.LogBackend{Out: file}, Mode: audit.ModeBatch, BufferSize: 10000, BatchSize: 400}},
		})
	}
}
