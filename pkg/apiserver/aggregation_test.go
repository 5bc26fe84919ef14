package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/storage"
)

const flunders = wardle + "/namespaces/default/flunders"

// A request reaches the extension API server with its user, and with nothing that the
// client says of users.
func TestAggregatedRequest(t *testing.T) {
	e := extend(t, func(c *apiserver.Config) {
		c.Authenticator = authn.Func(func(*http.Request) (*request.User, error) {
			return &request.User{Name: "jane", UID: "7", Groups: []string{authn.Masters, "dev"}, Extra: map[string][]string{"example.com/scope": {"a", "b"}}}, nil
		})
	})
	e.register(t, "Passed")
	got := must[asked](e.world, 200, "PUT", flunders+"/x?dryRun=All&x=%2F", jsonType, `{}`, "Audit-Id", "audited",
		"Authorization", "Bearer secret", "X-Remote-User", "mallory", "X-Remote-Extra-Scopes", "all", "X_remote_group", "system:masters")
	if got.Method != "PUT" || got.URL != flunders+"/x?dryRun=All&x=%2F" {
		t.Errorf("the server was asked %s %s", got.Method, got.URL)
	}
	want := map[string][]string{
		"X-Remote-User": {"jane"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {authn.Masters, "dev"},
		"X-Remote-Extra-Example.com%2fscope": {"a", "b"}, "Audit-Id": {"audited"}, "Content-Type": {jsonType},
	}
	for name, values := range got.Header {
		said := strings.HasPrefix(strings.ReplaceAll(name, "_", "-"), "X-Remote-") || name == "Authorization" || strings.HasPrefix(name, "Impersonate")
		if said && !slices.Equal(values, want[name]) {
			t.Errorf("%s: %q, want %q", name, values, want[name])
		}
	}
	for name, values := range want {
		if !slices.Equal(got.Header[name], values) {
			t.Errorf("%s: %q, want %q", name, got.Header[name], values)
		}
	}
}

// Authorization is this server's: the other one is not asked what the user may not do.
func TestAggregatedRequestIsAuthorized(t *testing.T) {
	e := extend(t, withAccess(t))
	e.register(t, "Passed")
	e.answer(func(http.ResponseWriter, *http.Request) { t.Error("a request that is not allowed was passed on") })
	status := must[metav1.Status](e.world, 403, "GET", flunders, "", "", "X-User", "joe")
	if !strings.Contains(status.Message, `flunders.wardle.example.com is forbidden: User "joe" cannot list resource "flunders" in API group "wardle.example.com"`) {
		t.Error(status.Message)
	}
	must[any](e.world, 404, "GET", wardle+"/namespaces/default/flunders/../../../../../api/v1/secrets", "", "")
}

// What a broken extension API server does is answered as upstream does, and reaches no
// other request.
func TestBrokenExtensionServer(t *testing.T) {
	for name, row := range map[string]struct {
		serve http.HandlerFunc
		code  int
		text  string
	}{
		"redirects": {serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example.com/", http.StatusFound)
		},
			code: 502, text: "the backend attempted to redirect this request, which is not permitted"},
		"fails":      {serve: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) }, code: 500, text: "broken"},
		"hangs up":   {serve: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, code: 503, text: "error trying to reach service: "},
		"never ends": {serve: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, code: 504, text: "request did not complete within the allotted timeout"},
		"hints first": {serve: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
		}, code: 418},
	} {
		t.Run(name, func(t *testing.T) {
			e := extend(t, func(c *apiserver.Config) { c.RequestTimeout = 2 * time.Second })
			e.register(t, "Passed")
			e.answer(row.serve)
			rec := e.do("GET", flunders, "", "")
			if rec.Code != row.code || !strings.Contains(rec.Body.String(), row.text) {
				t.Errorf("%d %s, want %d %s", rec.Code, rec.Body, row.code, row.text)
			}
			if rec.Header().Get("Location") != "" {
				t.Error("the redirect was passed on")
			}
		})
	}
}

// A server that hangs holds a limited number of requests, and none of others.
func TestHungExtensionServer(t *testing.T) {
	e := extend(t)
	e.register(t, "Passed")
	reached := make(chan struct{}, 200)
	release := make(chan struct{})
	e.answer(func(http.ResponseWriter, *http.Request) { reached <- struct{}{}; <-release })
	codes := make(chan int, 120)
	for range 120 {
		go func() { codes <- e.do("GET", flunders, "", "").Code }()
	}
	for range 20 {
		if code := <-codes; code != 429 {
			t.Errorf("%d, want 429", code)
		}
	}
	must[any](e.world, 200, "GET", cms, "", "")
	for range 100 {
		<-reached
	}
	close(release)
	for range 100 {
		if code := <-codes; code != 200 {
			t.Errorf("%d after the server woke up", code)
		}
	}
}

// A long answer is passed on as it comes.
func TestLongAnswer(t *testing.T) {
	e := extend(t)
	e.register(t, "Passed")
	const pieces, piece = 64, 1 << 20
	e.answer(func(w http.ResponseWriter, _ *http.Request) {
		for range pieces {
			_, _ = w.Write(make([]byte, piece))
		}
	})
	web := httptest.NewServer(e.handler)
	defer web.Close()
	resp, err := http.Get(web.URL + flunders)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != pieces*piece || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A watch has no time limit, and its events arrive at once.
func TestAggregatedWatch(t *testing.T) {
	e := extend(t, func(c *apiserver.Config) { c.RequestTimeout = 2 * time.Second })
	e.register(t, "Passed")
	ended := make(chan struct{})
	next := make(chan struct{})
	e.answer(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for range 2 {
			_, _ = io.WriteString(w, `{"type":"ADDED"}`+"\n")
			w.(http.Flusher).Flush()
			<-next
		}
		<-r.Context().Done()
	})
	web := httptest.NewServer(e.handler)
	defer web.Close()
	resp, err := http.Get(web.URL + flunders + "?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for range 2 {
		if line, err := lines.ReadString('\n'); line != `{"type":"ADDED"}`+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
		time.Sleep(1100 * time.Millisecond) // twice: longer than a request may take
		next <- struct{}{}
	}
	e.stop() // ends the watch
	if _, err := lines.ReadString('\n'); err == nil {
		t.Error("the watch goes on after the server's shutdown")
	}
	resp.Body.Close()
	<-ended
}

// A request that switches protocols becomes a connection to the extension API server,
// for longer than a request may take. It carries the user, and no credentials.
func TestAggregatedUpgrade(t *testing.T) {
	e := extend(t, func(c *apiserver.Config) { c.RequestTimeout = 2 * time.Second })
	e.register(t, "Passed")
	seen := make(chan http.Header, 1)
	e.answer(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
	web := httptest.NewServer(e.handler)
	defer web.Close()
	conn, err := net.Dial("tcp", web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET "+flunders+"/x/console HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, X-Remote-User\r\nUpgrade: echo\r\n"+
		"X-Remote-User: mallory\r\nAuthorization: Bearer secret\r\nSec-Websocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	header := <-seen
	text, _ := json.Marshal(header)
	if header.Get("X-Remote-User") != "admin" || header.Get("Connection") != "Upgrade" || strings.Contains(string(text), "ecret") || strings.Contains(string(text), "mallory") || strings.Contains(string(text), "c2VjcmV0") {
		t.Errorf("the server was asked with %s", text)
	}
	for range 2 {
		_, _ = io.WriteString(conn, "hello\n")
		if line, err := in.ReadString('\n'); line != "hello\n" {
			t.Fatalf("%q, %v", line, err)
		}
		time.Sleep(2100 * time.Millisecond) // longer than a request may take
	}
}

// The condition Available follows the Service, its port, its endpoints and the server.
func TestAvailability(t *testing.T) {
	e := extend(t)
	must[any](e.world, 200, "DELETE", apiSlice, "", "")
	must[any](e.world, 200, "DELETE", "/api/v1/namespaces/default/services/api", "", "")
	e.register(t, "ServiceNotFound")
	if rec := e.do("GET", flunders, "", ""); rec.Code != 503 || rec.Body.String() != "service unavailable\n" {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
	const services, slices = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	must[any](e.world, 201, "POST", services, jsonType, `{"metadata":{"name":"api"},"spec":{"ports":[{"name":"https","port":8443}]}}`)
	if c := e.await(t, "ServicePortError"); c.Message != `service/api in "default" is not listening on port 443` {
		t.Error(c.Message)
	}
	must[any](e.world, 200, "PATCH", services+"/api", mergeType, `{"spec":{"ports":[{"name":"https","port":443}]}}`)
	if c := e.await(t, "EndpointsNotFound"); c.Message != `cannot find endpointslices for service/api in "default"` {
		t.Error(c.Message)
	}
	slice := func(ready string) string {
		return `{"metadata":{"name":"api-1","labels":{"kubernetes.io/service-name":"api"}},"addressType":"IPv4","ports":[{"name":"https","port":443}],"endpoints":[{"addresses":["10.1.2.3"],"conditions":{"ready":` + ready + `}}]}`
	}
	must[any](e.world, 201, "POST", slices, jsonType, slice("false"))
	if c := e.await(t, "MissingEndpoints"); c.Message != `endpointslices for service/api in "default" have no addresses with port name "https"` {
		t.Error(c.Message)
	}
	must[any](e.world, 200, "PATCH", apiSlice, mergeType, slice("true"))
	if c := e.await(t, "Passed"); c.Status != apiregistrationv1.ConditionTrue || c.Message != "all checks passed" {
		t.Errorf("%+v", c)
	}
	must[any](e.world, 200, "GET", flunders, "", "")
	e.down()
	e.recheck(t)
	eventually(t, "the end of service", func() bool { return e.do("GET", flunders, "", "").Code == 503 })
	c := e.await(t, "FailedDiscoveryCheck")
	if !strings.HasPrefix(c.Message, "failing or missing response from https://10.96.") || c.Status != apiregistrationv1.ConditionFalse {
		t.Errorf("%+v", c)
	}
	text := e.do("GET", "/metrics", "", "").Body.String()
	for _, want := range []string{
		`aggregator_unavailable_apiservice{name="v1alpha1.wardle.example.com"} 1`, `aggregator_unavailable_apiservice{name="v1.apps"} 0`,
		`aggregator_unavailable_apiservice_total{name="v1alpha1.wardle.example.com",reason="FailedDiscoveryCheck"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	must[any](e.world, 200, "DELETE", apiService, "", "")
	eventually(t, "the end of the route", func() bool { return e.do("GET", flunders, "", "").Code == 404 })
}

// Only a server that the caBundle's authority certified for the Service's name is asked.
func TestExtensionServerIsVerified(t *testing.T) {
	e := extend(t)
	e.answer(func(http.ResponseWriter, *http.Request) { t.Error("a server that is not trusted was asked") })
	e.registerWith(t, `"groupPriorityMinimum":2000`, "FailedDiscoveryCheck") // the system's authorities
	if c := e.await(t, "FailedDiscoveryCheck"); !strings.Contains(c.Message, "x509: certificate signed by unknown authority") {
		t.Error(c.Message)
	}
	must[any](e.world, 200, "PATCH", apiService, mergeType, `{"spec":{"caBundle":"`+e.ca+`","service":{"name":"other"}}}`)
	e.await(t, "ServiceNotFound")
	must[any](e.world, 201, "POST", "/api/v1/namespaces/default/services", jsonType, `{"metadata":{"name":"other"},"spec":{"type":"NodePort","ports":[{"port":443}]}}`)
	if c := e.await(t, "FailedDiscoveryCheck"); !strings.Contains(c.Message, "certificate is valid for api.default.svc, not other.default.svc") {
		t.Error(c.Message)
	}
	e.answer(whoAsks)
	must[any](e.world, 200, "PATCH", apiService, mergeType, `{"spec":{"caBundle":null,"insecureSkipTLSVerify":true}}`)
	e.await(t, "Passed")
	must[any](e.world, 200, "PATCH", apiService, mergeType, `{"spec":{"caBundle":"aGVsbG8=","insecureSkipTLSVerify":false}}`)
	if c := e.await(t, "FailedDiscoveryCheck"); !strings.Contains(c.Message, "unable to load root certificates") {
		t.Error(c.Message)
	}
}

// Discovery and OpenAPI include what the extension API server serves, at the place of
// its priority. After it is gone, they keep that, marked as stale.
func TestAggregatedDiscovery(t *testing.T) {
	e := extend(t)
	addWidgets(t, e.world)
	e.register(t, "Passed")
	find := func() *apidiscoveryv2.APIVersionDiscovery {
		list := must[apidiscoveryv2.APIGroupDiscoveryList](e.world, 200, "GET", "/apis", "", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		for _, g := range list.Items {
			if g.Name == "wardle.example.com" {
				return &g.Versions[0]
			}
		}
		return nil
	}
	v := find() // at once: the resources were published before the condition
	if v == nil || v.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent {
		t.Fatalf("when the APIService has become available, its discovery is %+v", v)
	}
	if len(v.Resources) != 1 || v.Resources[0].Resource != "flunders" || v.Resources[0].ResponseKind.Kind != "Flunder" || len(v.Resources[0].Subresources) != 1 {
		t.Errorf("%+v", v)
	}
	var names []string
	for _, g := range must[metav1.APIGroupList](e.world, 200, "GET", "/apis", "", "").Groups {
		names = append(names, g.Name)
	}
	if n := len(names); names[0] != "apiregistration.k8s.io" || names[n-2] != "wardle.example.com" || names[n-1] != "stable.example.com" {
		t.Errorf("groups %v", names)
	}
	if g := must[metav1.APIGroup](e.world, 200, "GET", "/apis/wardle.example.com", "", ""); g.PreferredVersion.GroupVersion != "wardle.example.com/v1alpha1" {
		t.Errorf("%+v", g)
	}
	if l := must[metav1.APIResourceList](e.world, 200, "GET", wardle, "", ""); len(l.APIResources) != 2 {
		t.Errorf("%+v", l)
	}
	eventually(t, "the OpenAPI document", func() bool {
		rec := e.do("GET", "/openapi/v3"+wardle, "", "")
		return rec.Code == 200 && strings.Contains(rec.Body.String(), `"title":"wardle"`)
	})
	if text := e.do("GET", "/openapi/v3", "", "").Body.String(); !strings.Contains(text, `"apis/wardle.example.com/v1alpha1"`) {
		t.Error(text)
	}
	if doc := must[spec.Swagger](e.world, 200, "GET", "/openapi/v2", "", ""); doc.Paths.Paths[wardle+"/flunders"].Get == nil || doc.Paths.Paths["/apis/elsewhere/v1/x"].Get != nil ||
		len(doc.Definitions["io.example.wardle.Flunder"].Properties) != 2 || len(doc.Definitions["io.k8s.api.core.v1.Pod_v2"].Properties) != 1 || len(doc.Definitions["io.k8s.api.core.v1.Pod"].Properties) < 5 {
		t.Errorf("merged: %v %v", doc.Paths.Paths[wardle+"/flunders"], doc.Definitions["io.example.wardle.Flunder"])
	}
	e.down()
	e.recheck(t)
	eventually(t, "staleness", func() bool {
		v := find()
		return v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale && len(v.Resources) == 1
	})
	must[any](e.world, 200, "DELETE", apiService, "", "")
	eventually(t, "the end", func() bool { return find() == nil })
	if text := e.do("GET", "/openapi/v2", "", "").Body.String(); strings.Contains(text, "wardle") {
		t.Error("OpenAPI v2 still has the resources")
	}
	eventually(t, "the end of the document", func() bool { return e.do("GET", "/openapi/v3"+wardle, "", "").Code == 404 })
}

// The group versions that the server serves itself have APIServices.
func TestLocalAPIServices(t *testing.T) {
	w := start(t)
	get := func(name string) *apiregistrationv1.APIService {
		rec := w.do("GET", apiServices+"/"+name, "", "")
		if rec.Code == 404 {
			return nil
		}
		out := &apiregistrationv1.APIService{}
		if err := json.Unmarshal(rec.Body.Bytes(), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, priorities := range map[string][2]int32{"v1.": {18000, 1}, "v1.apps": {17800, 15}, "v1.rbac.authorization.k8s.io": {17000, 15}} {
		s := get(name)
		if s == nil || s.Spec.GroupPriorityMinimum != priorities[0] || s.Spec.VersionPriority != priorities[1] || s.Labels["kube-aggregator.kubernetes.io/automanaged"] != "onstart" {
			t.Fatalf("%s: %+v", name, s)
		}
		if c := s.Status.Conditions; len(c) != 1 || c[0].Reason != "Local" || c[0].Status != "True" || c[0].Message != "Local APIServices are always available" {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if s := get("v1.apiregistration.k8s.io"); s != nil {
		t.Errorf("%+v", s)
	}
	addWidgets(t, w)
	eventually(t, "the APIService of widgets", func() bool { return get("v1.stable.example.com") != nil })
	if s := get("v1.stable.example.com"); s.Spec.GroupPriorityMinimum != 1000 || s.Spec.VersionPriority != 100 || s.Labels["kube-aggregator.kubernetes.io/automanaged"] != "true" {
		t.Errorf("%+v", s)
	}
	must[any](w, 200, "DELETE", apiServices+"/v1.stable.example.com", "", "")
	eventually(t, "its return", func() bool { return get("v1.stable.example.com") != nil })
	w.server.RemoveKind(widgetKind().GVR().GroupResource())
	eventually(t, "its end", func() bool { return get("v1.stable.example.com") == nil })
	rec := w.do("GET", apiServices+"/v1.apps", "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var table metav1.Table
	if err := json.Unmarshal(rec.Body.Bytes(), &table); err != nil || len(table.Rows) != 1 || table.Rows[0].Cells[1] != "Local" || table.Rows[0].Cells[2] != "True" {
		t.Errorf("%s", rec.Body)
	}
}

// A restart leaves the APIServices of CustomResourceDefinitions alone, also if it takes
// long until their kinds are served.
func TestRestartKeepsAPIServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func(w *world) *apiregistrationv1.APIService {
			w.eventually("the APIService", func() bool { return w.do("GET", apiServices+"/v1.stable.example.com", "", "").Code == 200 })
			return must[apiregistrationv1.APIService](w, 200, "GET", apiServices+"/v1.stable.example.com", "", "")
		}
		first := start(t)
		first.define(crdOf(gadgetSize, ""))
		before := get(first)
		first.stop()
		second := start(t, func(c *apiserver.Config) {
			c.Store = &slowList{first.store, "/registry/gadgets.stable.example.com/"}
		})
		second.eventually("the start", func() bool {
			return !strings.Contains(second.do("GET", "/readyz?verbose", "", "").Body.String(), "[-]poststarthook/bootstrap")
		})
		time.Sleep(2 * time.Second) // APIServices are checked once the server has its objects
		if after := get(second); after.UID != before.UID {
			t.Errorf("the APIService %s was replaced by %s", before.UID, after.UID)
		}
		second.eventually("readiness", func() bool { return second.do("GET", "/readyz", "", "").Code == 200 })
		if after := get(second); after.ResourceVersion != before.ResourceVersion {
			t.Errorf("changed from %s to %s", before.ResourceVersion, after.ResourceVersion)
		}
		second.stop()
	})
}

// slowList takes five seconds to list a prefix.
type slowList struct {
	storage.Store
	prefix string
}

func (s *slowList) List(ctx context.Context, prefix string, o storage.ListOptions) (storage.Page, error) {
	if prefix == s.prefix {
		time.Sleep(5 * time.Second)
	}
	return s.Store.List(ctx, prefix, o)
}
