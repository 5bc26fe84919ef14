package apiserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"podium/pkg/apiserver"
	"podium/pkg/cluster/pki"
)

const (
	wardle      = "/apis/wardle.example.com/v1alpha1"
	apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"
	apiService  = apiServices + "/v1alpha1.wardle.example.com"
	apiSlice    = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/api-1"
)

// extension is an extension API server behind the Service default/api. It answers only
// clients with the certificate front-proxy-client, as k8s.io/apiserver does.
type extension struct {
	*world
	ca      string // base64 of the authority of its certificate
	address atomic.Pointer[string]
	serve   atomic.Pointer[http.HandlerFunc] // requests for its resources
	down    func()                           // ends its connections; no new one is possible
}

// certificate returns a certificate that the authority named ca in dir signs.
func certificate(t testing.TB, dir, ca string, id pki.Identity) tls.Certificate {
	t.Helper()
	authority, err := pki.OpenAuthority(dir, ca, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	name := ca + "-" + strings.ReplaceAll(id.Name, ":", "-")
	if err := authority.Issue(dir, name, id); err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := pki.Files(dir, name)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// extend starts a server and an extension API server with a Service and an
// EndpointSlice, but without an APIService.
func extend(t *testing.T, change ...func(*apiserver.Config)) *extension {
	t.Helper()
	dir := t.TempDir()
	proxy := certificate(t, dir, "front-proxy-ca", pki.Identity{Name: "front-proxy-client"})
	e := &extension{}
	server := certificate(t, dir, "ca", pki.Identity{Name: "api", Hosts: []string{"api.default.svc"}})
	caFile, _ := pki.Files(dir, "ca")
	pem, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	e.ca = base64.StdEncoding.EncodeToString(pem)
	e.listen(t, dir, server)
	e.answer(whoAsks)
	e.world = start(t, append([]func(*apiserver.Config){func(c *apiserver.Config) {
		c.Aggregation.Certificate = func() *tls.Certificate { return &proxy }
		c.Aggregation.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if !strings.HasSuffix(address, ":443") || !strings.HasPrefix(address, "10.96.") {
				return nil, fmt.Errorf("dialed %s", address)
			}
			return (&net.Dialer{}).DialContext(ctx, network, *e.address.Load())
		}
	}}, change...)...)
	must[corev1.Service](e.world, 201, "POST", "/api/v1/namespaces/default/services", jsonType,
		`{"metadata":{"name":"api"},"spec":{"ports":[{"name":"https","port":443}]}}`)
	must[any](e.world, 201, "POST", strings.TrimSuffix(apiSlice, "/api-1"), jsonType,
		`{"metadata":{"name":"api-1","labels":{"kubernetes.io/service-name":"api"}},"addressType":"IPv4","ports":[{"name":"https","port":443}],"endpoints":[{"addresses":["10.1.2.3"]}]}`)
	return e
}

// listen starts the extension API server with a certificate, in place of one that runs.
func (e *extension) listen(t testing.TB, dir string, cert tls.Certificate) {
	t.Helper()
	caFile, _ := pki.Files(dir, "front-proxy-ca")
	pem, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	proxies := x509.NewCertPool()
	proxies.AppendCertsFromPEM(pem)
	web := httptest.NewUnstartedServer(http.HandlerFunc(e.handle))
	web.Config.ErrorLog = log.New(testLog{t}, "", 0)
	web.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: proxies}
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	address, nowhere := web.Listener.Addr().String(), "127.0.0.1:1"
	e.address.Store(&address)
	e.down = func() {
		e.address.Store(&nowhere)
		web.CloseClientConnections()
	}
}

// testLog drops a server's complaints about connections that tests break.
type testLog struct{ testing.TB }

func (testLog) Write(p []byte) (int, error) { return len(p), nil }

// answer sets what serves the resources.
func (e *extension) answer(h http.HandlerFunc) { e.serve.Store(&h) }

func (e *extension) handle(w http.ResponseWriter, r *http.Request) {
	if r.TLS.PeerCertificates[0].Subject.CommonName != "front-proxy-client" || r.Header.Get("X-Remote-User") == "" {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	switch strings.TrimSuffix(r.URL.Path, "/") {
	case wardle:
		w.Header().Set("Content-Type", jsonType)
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"wardle.example.com/v1alpha1","resources":[
			{"name":"flunders","singularName":"flunder","namespaced":true,"kind":"Flunder","verbs":["get","list"],"shortNames":["fl"]},
			{"name":"flunders/status","namespaced":true,"kind":"Flunder","verbs":["get"]}]}`)
	case "/openapi/v3":
		fmt.Fprintf(w, `{"paths":{"apis/wardle.example.com/v1alpha1":{"serverRelativeURL":"/openapi/v3/apis/wardle.example.com/v1alpha1?hash=1"}}}`)
	case "/openapi/v3" + wardle:
		fmt.Fprint(w, `{"openapi":"3.0.0","info":{"title":"wardle","version":"1"},"paths":{}}`)
	case "/openapi/v2":
		fmt.Fprint(w, `{"swagger":"2.0","info":{"title":"wardle","version":"1"},"paths":{
			"/apis/wardle.example.com/v1alpha1/flunders":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/io.example.wardle.Flunder"}}}}},
			"/apis/elsewhere/v1/x":{"get":{"responses":{"200":{"description":"OK"}}}}},"definitions":{
			"io.example.wardle.Flunder":{"properties":{"spec":{"type":"string"},"pod":{"$ref":"#/definitions/io.k8s.api.core.v1.Pod"}}},
			"io.k8s.api.core.v1.Pod":{"properties":{"mine":{"type":"string"}}}}}`)
	case "/apis":
		http.NotFound(w, r)
	default:
		(*e.serve.Load())(w, r)
	}
}

// whoAsks answers with the request.
func whoAsks(w http.ResponseWriter, r *http.Request) {
	_ = json.NewEncoder(w).Encode(asked{r.Method, r.URL.String(), r.Header})
}

type asked struct {
	Method, URL string
	Header      http.Header
}

// register creates the APIService and waits until its condition has the reason.
func (e *extension) register(t testing.TB, reason string) {
	t.Helper()
	e.registerWith(t, `"caBundle":"`+e.ca+`"`, reason)
}

func (e *extension) registerWith(t testing.TB, trust, reason string) {
	t.Helper()
	must[apiregistrationv1.APIService](e.world, 201, "POST", apiServices, jsonType, `{"metadata":{"name":"v1alpha1.wardle.example.com"},"spec":{
		"group":"wardle.example.com","version":"v1alpha1","groupPriorityMinimum":2000,"versionPriority":200,
		"service":{"namespace":"default","name":"api"},`+trust+`}}`)
	e.await(t, reason)
}

// await waits until the APIService's condition has the reason.
func (e *extension) await(t testing.TB, reason string) apiregistrationv1.APIServiceCondition {
	t.Helper()
	var c apiregistrationv1.APIServiceCondition
	eventually(t, "the reason "+reason, func() bool {
		s := must[apiregistrationv1.APIService](e.world, 200, "GET", apiService, "", "")
		if len(s.Status.Conditions) == 0 {
			return false
		}
		c = s.Status.Conditions[0]
		return c.Reason == reason
	})
	return c
}

// recheck makes the server check the APIService now.
func (e *extension) recheck(t testing.TB) {
	t.Helper()
	must[any](e.world, 200, "PATCH", apiSlice, mergeType, fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, metav1.Now().Format(time.RFC3339Nano)))
}

// eventually polls: real connections leave nothing to wait on.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
