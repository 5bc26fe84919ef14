package apiserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/cluster/pki"
)

// rule adds an admission plugin that observes or rejects every write.
func rule(f admission.Func) func(*apiserver.Config) {
	return func(cfg *apiserver.Config) { cfg.Admission.Extra = admission.Chain{{Name: "test", Validate: f}} }
}

func TestAPanicIsA500(t *testing.T) {
	w := start(t, rule(func(_ context.Context, a *admission.Attributes) error {
		if a.Name == "panic" {
			panic("on purpose")
		}
		return nil
	}))
	status := must[metav1.Status](w, 500, "POST", cms, jsonType, configMap("panic"))
	if !strings.Contains(status.Message, "this request caused apiserver to panic") || status.Reason != metav1.StatusReasonInternalError {
		t.Errorf("%+v", status)
	}
	must[corev1.ConfigMap](w, 201, "POST", cms, jsonType, configMap("fine"))
}

// everybody returns an authorizer that allows everything.
func everybody() authz.Authorizer {
	return authz.Func(func(context.Context, *request.User, *request.Info) (authz.Decision, string) { return authz.Allow, "" })
}

func TestTooManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := start(t, func(cfg *apiserver.Config) { cfg.MaxWrites, cfg.MaxReads, cfg.Authorizer = 4, 5, everybody() },
			rule(func(_ context.Context, a *admission.Attributes) error {
				if a.User != nil {
					<-release
				}
				return nil
			}))
		var all sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			all.Go(func() {
				if rec := w.do("POST", cms, jsonType, configMap(name), "X-User", "joe"); rec.Code != 201 {
					t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
				}
			})
		}
		synctest.Wait()
		rec := w.do("POST", cms, jsonType, configMap("c"), "X-User", "joe")
		if rec.Code != 429 || rec.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
		}
		if rec := w.do("GET", cms, "", "", "X-User", "joe"); rec.Code != 200 {
			t.Errorf("reads are counted apart: %d", rec.Code)
		}
		close(release)
		all.Wait()
	})
}

func TestARequestThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, rule(func(ctx context.Context, a *admission.Attributes) error {
			if a.Name != "slow" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}))
		began := time.Now()
		status := must[metav1.Status](w, 504, "POST", cms, jsonType, configMap("slow"))
		if status.Reason != metav1.StatusReasonTimeout || time.Since(began) != time.Minute {
			t.Errorf("after %v: %+v", time.Since(began), status)
		}
	})
}

func TestEveryAnswerHasItsHeaders(t *testing.T) {
	w := start(t)
	rec := w.do("GET", cms, "", "", "Audit-Id", "mine")
	if rec.Header().Get("Audit-Id") != "mine" || rec.Header().Get("Cache-Control") != "no-cache, private" {
		t.Errorf("%v", rec.Header())
	}
	if rec = w.do("GET", cms, "", ""); rec.Header().Get("Audit-Id") == "" {
		t.Errorf("%v", rec.Header())
	}
}

// An unsupported method is answered before authorization: no rule allows it,
// not even one with all verbs.
func TestUnknownMethods(t *testing.T) {
	w := start(t, withAccess(t))
	for _, row := range []struct{ method, path, allow string }{
		{"LIST", "/api/v1/namespaces/kube-system/secrets", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"},
		{"DELETECOLLECTION", cms + "/x", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"},
		{"PROPFIND", "/version", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"},
		{"TRACE", "/nowhere", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"},
		{"get", "/version", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"},
		{"PUT", "/api/v1/watch/pods", "GET, HEAD"},
	} {
		for _, user := range []string{"", "joe"} {
			rec := w.do(row.method, row.path, "", "", "X-User", user)
			if rec.Code != 405 || rec.Header().Get("Allow") != row.allow || !strings.Contains(rec.Body.String(), `"reason":"MethodNotAllowed"`) {
				t.Errorf("%s %s of %q: %d, allowed %q: %s", row.method, row.path, user, rec.Code, rec.Header().Get("Allow"), rec.Body)
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", cms, jsonType, configMap("x"))
	text := w.do("GET", "/metrics", "", "").Body.String()
	for _, want := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_current_inflight_requests{request_kind="readOnly"} 1`,
		`etcd_request_duration_seconds_count{group="",operation="create",resource="configmaps"} 1`,
		`apiserver_watch_events_total{group="",resource="configmaps",version="v1"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// A server on a real connection: TLS, HTTP/2, client certificates and a
// graceful shutdown.
func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(id pki.Identity) tls.Certificate {
		file := strings.ReplaceAll(id.Name, ":", "-")
		if err := ca.Issue(dir, file, id); err != nil {
			t.Fatal(err)
		}
		certFile, keyFile := pki.Files(dir, file)
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	caFile, _ := pki.Files(dir, "ca")
	text, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := issue(pki.Identity{Name: "server", Hosts: []string{"127.0.0.1"}})
	w := start(t, func(cfg *apiserver.Config) {
		cfg.Listener, cfg.Authenticator = l, nil
		cfg.Authn = apiserver.Authentication{Anonymous: true, Requests: []authn.Authenticator{
			authn.Certificates(authn.CertificateConfig{Roots: func() *x509.CertPool { return pool }}),
		}}
		cfg.TLS = &tls.Config{
			Certificates: []tls.Certificate{server}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"},
		}
	})
	url := "https://" + l.Addr().String()
	client := func(certs ...tls.Certificate) *http.Client {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	for _, tc := range []struct {
		who  string
		c    *http.Client
		path string
		code int
	}{
		{"admin", client(issue(pki.Identity{Name: "ann", Groups: []string{"system:masters"}})), cms, 200},
		{"scheduler", client(issue(pki.Identity{Name: "system:kube-scheduler"})), "/api/v1/nodes", 200},
		{"scheduler", client(issue(pki.Identity{Name: "system:kube-scheduler"})), cms, 403},
		{"node", client(issue(pki.Identity{Name: "system:node:n", Groups: []string{"system:nodes"}})), "/api/v1/services", 200},
		{"node", client(issue(pki.Identity{Name: "system:node:n", Groups: []string{"system:nodes"}})), cms, 403},
		{"user", client(issue(pki.Identity{Name: "joe"})), cms, 403},
		{"user", client(issue(pki.Identity{Name: "joe"})), "/apis", 200},
		{"nobody", client(), cms, 401},
		{"nobody", client(), "/apis", 401},
		{"nobody", client(), "/version", 200},
		{"nobody", client(), "/readyz", 200},
		{"nobody", client(), "/metrics", 401},
	} {
		resp, err := tc.c.Get(url + tc.path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tc.code || resp.ProtoMajor != 2 {
			t.Errorf("%s at %s: %d over %s, want %d", tc.who, tc.path, resp.StatusCode, resp.Proto, tc.code)
		}
	}
	w.stop()
	if _, err := client().Get(url + "/version"); err == nil {
		t.Error("the door is still open")
	}
}

func TestOldEventsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(cfg *apiserver.Config) { cfg.EventTTL = time.Hour })
		const events = "/api/v1/namespaces/default/events"
		event := func(name string) string {
			return `{"metadata":{"name":"` + name + `","namespace":"default"},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"},"reason":"R","type":"Normal"}`
		}
		must[any](w, 201, "POST", events, jsonType, event("once"))
		must[any](w, 201, "POST", events, jsonType, event("again"))
		time.Sleep(50 * time.Minute)
		must[any](w, 200, "PATCH", events+"/again", mergeType, `{"lastTimestamp":"`+time.Now().UTC().Format(time.RFC3339)+`"}`)
		time.Sleep(12 * time.Minute)
		synctest.Wait()
		if list := must[corev1.EventList](w, 200, "GET", events, "", ""); len(list.Items) != 1 || list.Items[0].Name != "again" {
			t.Errorf("left: %v", list.Items)
		}
	})
}

func TestAnAdministratorActsAsOthers(t *testing.T) {
	w := start(t)
	for _, tc := range []struct {
		header []string
		code   int
	}{
		{[]string{"Impersonate-User", "joe"}, 403},
		{[]string{"Impersonate-User", "joe", "Impersonate-Group", "system:masters"}, 200},
		{[]string{"Impersonate-User", "system:serviceaccount:default:default"}, 403},
		{[]string{"Impersonate-User", "joe", "Impersonate-Uid", "1", "Impersonate-Extra-Scopes", "x"}, 403},
		{nil, 200},
	} {
		rec := w.do("GET", cms, "", "", tc.header...)
		if rec.Code != tc.code || rec.Code == 403 && !strings.Contains(rec.Body.String(), `User \"`+tc.header[1]+`\" cannot list`) {
			t.Errorf("%v: %d %s", tc.header, rec.Code, rec.Body)
		}
	}
}
