package apiserver_test

//lint:file-ignore SA1019 Endpoints are deprecated, and served.

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	docs "podium/api/openapi"
	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/openapi"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
)

// world is a running server over the memory store.
type world struct {
	testing.TB
	server  *apiserver.Server
	handler http.Handler
	store   *memory.Store
	stop    func() // stops the server; called at the end of the test as well
}

// asAdmin authenticates every request as an administrator, or as the user that
// a header names.
func asAdmin() authn.Authenticator {
	return authn.Func(func(r *http.Request) (*request.User, error) {
		if name := r.Header.Get("X-User"); name != "" {
			return &request.User{Name: name, Groups: []string{authn.Authenticated}}, nil
		}
		return &request.User{Name: "admin", Groups: []string{authn.Masters, authn.Authenticated}}, nil
	})
}

// start runs a server until the test ends.
func start(t testing.TB, change ...func(*apiserver.Config)) *world {
	t.Helper()
	s, store := scheme.New(), memory.New()
	cidr := netip.MustParsePrefix("10.96.0.0/16")
	cfg := apiserver.Config{
		Scheme: s, Store: store, Log: slog.New(slog.DiscardHandler), Authenticator: asAdmin(),
		Kinds: registry.Kinds(s, registry.Config{
			Store: store, ServiceCIDR: cidr, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now,
		}),
		OpenAPI:   &openapi.Documents{V2: docs.V2, V3: docs.V3, Paths: docs.Paths},
		Advertise: netip.MustParseAddrPort("192.0.2.1:6443"), ServiceCIDR: cidr, Identity: "test",
		CompactEvery: -1,
	}
	for _, f := range change {
		f(&cfg)
	}
	server, err := apiserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	w := &world{TB: t, server: server, handler: server.Handler(), store: store}
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(w.stop)
	for w.do("GET", "/readyz", "", "").Code != http.StatusOK {
		time.Sleep(time.Millisecond) // outside a synctest bubble there is nothing to wait on
	}
	return w
}

// do sends one request; header is "Name: value" pairs.
func (w *world) do(method, path, contentType, body string, header ...string) *httptest.ResponseRecorder {
	w.Helper()
	var r *http.Request
	if body == "" {
		r = httptest.NewRequest(method, path, http.NoBody)
	} else {
		r = httptest.NewRequest(method, path, bytes.NewReader([]byte(body)))
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	return rec
}

// must is do for an expected status code; it returns the decoded response.
func must[T any](w *world, want int, method, path, contentType, body string, header ...string) *T {
	w.Helper()
	rec := w.do(method, path, contentType, body, header...)
	if rec.Code != want {
		w.Fatalf("%s %s: %d, want %d: %s", method, path, rec.Code, want, rec.Body)
	}
	out := new(T)
	if err := json.Unmarshal(rec.Body.Bytes(), out); err != nil {
		w.Fatalf("%s %s: %v in %s", method, path, err, rec.Body)
	}
	return out
}

const (
	cms       = "/api/v1/namespaces/default/configmaps"
	jsonType  = "application/json"
	yamlType  = "application/yaml"
	protoType = "application/vnd.kubernetes.protobuf"
	mergeType = "application/merge-patch+json"
	smpType   = "application/strategic-merge-patch+json"
	jsonPatch = "application/json-patch+json"
	applyType = "application/apply-patch+yaml"
)

func configMap(name string) string {
	return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `"},"data":{"a":"1"}}`
}

func TestAnObjectsLife(t *testing.T) {
	w := start(t)
	made := must[corev1.ConfigMap](w, 201, "POST", cms, jsonType, configMap("x"))
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || made.Namespace != "default" {
		t.Errorf("created %+v", made.ObjectMeta)
	}
	got := must[corev1.ConfigMap](w, 200, "GET", cms+"/x", "", "")
	if got.UID != made.UID || got.ResourceVersion != made.ResourceVersion || got.Data["a"] != "1" {
		t.Errorf("read %+v, created %+v", got, made)
	}
	got.Data["a"] = "2"
	text, _ := json.Marshal(got)
	changed := must[corev1.ConfigMap](w, 200, "PUT", cms+"/x", jsonType, string(text))
	if changed.ResourceVersion == made.ResourceVersion || changed.Data["a"] != "2" {
		t.Errorf("updated %+v", changed)
	}
	again := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x", mergeType, `{"data":{"a":"2"}}`)
	if again.ResourceVersion != changed.ResourceVersion {
		t.Errorf("a patch that changes nothing made revision %s of %s", again.ResourceVersion, changed.ResourceVersion)
	}
	must[metav1.Status](w, 409, "PUT", cms+"/x", jsonType, string(text))
	list := must[corev1.ConfigMapList](w, 200, "GET", cms, "", "")
	if len(list.Items) != 1 || list.Items[0].Kind != "" || list.Kind != "ConfigMapList" {
		t.Errorf("list %+v", list)
	}
	gone := must[metav1.Status](w, 200, "DELETE", cms+"/x", "", "")
	if gone.Status != "Success" || gone.Details == nil || gone.Details.UID != made.UID || gone.Details.Kind != "configmaps" {
		t.Errorf("delete said %+v", gone)
	}
	must[metav1.Status](w, 404, "GET", cms+"/x", "", "")
}

func TestEveryMediaTypeOnTheWayInAndOut(t *testing.T) {
	w := start(t)
	s := scheme.New()
	for _, media := range []string{jsonType, yamlType, protoType} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "gen-"}, Data: map[string]string{"a": "b"}}
		body, err := s.Encode(cm, media)
		if err != nil {
			t.Fatal(err)
		}
		rec := w.do("POST", cms, media, string(body), "Accept", media)
		if rec.Code != 201 || rec.Header().Get("Content-Type") != media {
			t.Fatalf("%s: %d %v %s", media, rec.Code, rec.Header(), rec.Body)
		}
		obj, _, err := s.DecodeStrict(rec.Body.Bytes(), media, nil)
		if err != nil {
			t.Fatal(err)
		}
		made := obj.(*corev1.ConfigMap)
		if made.ResourceVersion == "" || made.Data["a"] != "b" || len(made.Name) != len("gen-")+5 {
			t.Errorf("%s: made %+v", media, made)
		}
		rec = w.do("GET", cms, "", "", "Accept", media)
		if obj, _, err = s.DecodeStrict(rec.Body.Bytes(), media, nil); err != nil {
			t.Fatalf("%s: %v in %s", media, err, rec.Body)
		}
		if list := obj.(*corev1.ConfigMapList); len(list.Items) == 0 || list.ResourceVersion == "" {
			t.Errorf("%s: list %+v", media, list)
		}
	}
}

func TestBootstrap(t *testing.T) {
	w := start(t)
	for _, ns := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		must[corev1.Namespace](w, 200, "GET", "/api/v1/namespaces/"+ns, "", "")
	}
	svc := must[corev1.Service](w, 200, "GET", "/api/v1/namespaces/default/services/kubernetes", "", "")
	if svc.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("kubernetes service at %s", svc.Spec.ClusterIP)
	}
	ep := must[corev1.Endpoints](w, 200, "GET", "/api/v1/namespaces/default/endpoints/kubernetes", "", "")
	if len(ep.Subsets) != 1 || ep.Subsets[0].Addresses[0].IP != "192.0.2.1" {
		t.Errorf("endpoints %+v", ep.Subsets)
	}
}
