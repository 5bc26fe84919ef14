package conformance

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
)

// A wardle is an extension API server that keeps flunders in memory. It takes users from
// the aggregator, which it knows by its certificate, and asks the cluster what they may.
type wardle struct {
	group   string
	ca      []byte // of its own certificate, as PEM
	port    int
	allowed []string // common names of the aggregator

	mu       sync.Mutex
	revision int
	flunders map[string]*unstructured.Unstructured // by namespace/name
	watchers []chan watch.Event
}

// serveWardle starts a wardle on an address, for the Service in a namespace.
func serveWardle(t *testing.T, ctx context.Context, address, service, namespace, group string) *wardle {
	t.Helper()
	w := &wardle{group: group, flunders: map[string]*unstructured.Unstructured{}}
	trust, err := admin.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	check(t, err)
	check(t, json.Unmarshal([]byte(trust.Data["requestheader-allowed-names"]), &w.allowed))
	proxies := x509.NewCertPool()
	if !proxies.AppendCertsFromPEM([]byte(trust.Data["requestheader-client-ca-file"])) {
		t.Fatal("the cluster publishes no CA of the aggregator")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	check(t, err)
	w.port = listener.Addr().(*net.TCPAddr).Port
	own := w.certificate(t, service+"."+namespace+".svc")
	web := &http.Server{Handler: w, TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: proxies}}
	done := make(chan error, 1)
	go func() { done <- web.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		web.Close()
		<-done
	})
	return w
}

// certificate returns a self-signed certificate.
func (w *wardle) certificate(t *testing.T, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	w.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (w *wardle) apiVersion() string { return w.group + "/v1alpha1" }

// ServeHTTP answers discovery and OpenAPI, and the requests for flunders of users that
// the cluster allows.
func (w *wardle) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	certs := r.TLS.PeerCertificates
	if len(certs) == 0 || !slices.Contains(w.allowed, certs[0].Subject.CommonName) || r.Header.Get("X-Remote-User") == "" {
		refuse(rw, http.StatusUnauthorized, "Unauthorized")
		return
	}
	root := "/apis/" + w.apiVersion()
	if doc := w.documents()[r.URL.Path]; doc != "" {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, doc)
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, root+"/namespaces/"), "/")
	if len(parts) < 2 || len(parts) > 3 || parts[1] != "flunders" || !strings.HasPrefix(r.URL.Path, root) {
		refuse(rw, http.StatusNotFound, "the server could not find the requested resource")
		return
	}
	name := ""
	if len(parts) == 3 {
		name = parts[2]
	}
	if ok, err := w.mayUse(r, parts[0], name); err != nil || !ok {
		refuse(rw, http.StatusForbidden, fmt.Sprintf("%s may not %s flunders: %v", r.Header.Get("X-Remote-User"), r.Method, err))
		return
	}
	w.serve(rw, r, parts[0], name)
}

// documents are discovery and OpenAPI, by path.
func (w *wardle) documents() map[string]string {
	version := `{"groupVersion":"` + w.apiVersion() + `","version":"v1alpha1"}`
	group := `"name":"` + w.group + `","versions":[` + version + `],"preferredVersion":` + version
	path := "/apis/" + w.apiVersion()
	flunders := fmt.Sprintf(`%q:{"get":{"operationId":"listFlunder","responses":{"200":{"description":"OK"}}}}`, path+"/namespaces/{namespace}/flunders")
	return map[string]string{
		"/apis":            `{"kind":"APIGroupList","apiVersion":"v1","groups":[{` + group + `}]}`,
		"/apis/" + w.group: `{"kind":"APIGroup","apiVersion":"v1",` + group + `}`,
		path: `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + w.apiVersion() + `","resources":[{"name":"flunders","singularName":"flunder","namespaced":true,"kind":"Flunder",
			"verbs":["create","delete","get","list","watch"]}]}`,
		"/openapi/v2":        `{"swagger":"2.0","info":{"title":"wardle","version":"v1"},"paths":{` + flunders + `}}`,
		"/openapi/v3":        fmt.Sprintf(`{"paths":{%q:{"serverRelativeURL":"/openapi/v3%s?hash=1"}}}`, path[1:], path),
		"/openapi/v3" + path: `{"openapi":"3.0.0","info":{"title":"wardle","version":"v1"},"paths":{` + flunders + `}}`,
	}
}

// mayUse asks the cluster whether the user may make a request.
func (w *wardle) mayUse(r *http.Request, namespace, name string) (bool, error) {
	verb := map[string]string{"POST": "create", "DELETE": "delete", "GET": "list"}[r.Method]
	if r.URL.Query().Get("watch") != "" {
		verb = "watch"
	} else if name != "" && r.Method == "GET" {
		verb = "get"
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.Header.Get("X-Remote-User"), Groups: r.Header.Values("X-Remote-Group"),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Name: name, Verb: verb, Group: w.group, Version: "v1alpha1", Resource: "flunders"},
	}}
	got, err := admin.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), review, metav1.CreateOptions{})
	return err == nil && got.Status.Allowed, err
}

func (w *wardle) serve(rw http.ResponseWriter, r *http.Request, namespace, name string) {
	if r.URL.Query().Get("watch") != "" {
		w.watch(rw, r)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	have := w.flunders[namespace+"/"+name]
	switch {
	case r.Method == "POST":
		u := &unstructured.Unstructured{}
		if err := json.NewDecoder(r.Body).Decode(&u.Object); err != nil {
			refuse(rw, http.StatusBadRequest, err.Error())
			return
		}
		u.SetNamespace(namespace)
		u.SetUID(types.UID(utilrand.String(16)))
		u.SetCreationTimestamp(metav1.Now())
		w.flunders[namespace+"/"+u.GetName()] = u
		w.tell(watch.Added, u)
		answer(rw, http.StatusCreated, u.Object)
	case name == "":
		items := []any{}
		for _, key := range slices.Sorted(maps.Keys(w.flunders)) {
			items = append(items, w.flunders[key].Object)
		}
		answer(rw, http.StatusOK, map[string]any{
			"apiVersion": w.apiVersion(), "kind": "FlunderList", "metadata": map[string]any{"resourceVersion": strconv.Itoa(w.revision)}, "items": items,
		})
	case have == nil:
		refuse(rw, http.StatusNotFound, fmt.Sprintf("flunders.%s %q not found", w.group, name))
	case r.Method == "DELETE":
		delete(w.flunders, namespace+"/"+name)
		w.tell(watch.Deleted, have)
		answer(rw, http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
	default:
		answer(rw, http.StatusOK, have.Object)
	}
}

// tell sends a change to all watchers. The caller holds the lock.
func (w *wardle) tell(kind watch.EventType, u *unstructured.Unstructured) {
	w.revision++
	u.SetResourceVersion(strconv.Itoa(w.revision))
	for _, c := range w.watchers {
		c <- watch.Event{Type: kind, Object: u.DeepCopy()}
	}
}

// watch streams changes from now on. It buffers more of them than a test makes.
func (w *wardle) watch(rw http.ResponseWriter, r *http.Request) {
	events := make(chan watch.Event, 100)
	w.mu.Lock()
	w.watchers = append(w.watchers, events)
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	out := http.NewResponseController(rw)
	for out.Flush() == nil {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			_ = json.NewEncoder(rw).Encode(map[string]any{"type": e.Type, "object": e.Object})
		}
	}
}

func answer(rw http.ResponseWriter, code int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_ = json.NewEncoder(rw).Encode(body)
}

func refuse(rw http.ResponseWriter, code int, message string) {
	reasons := map[int]metav1.StatusReason{401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 400: metav1.StatusReasonBadRequest}
	answer(rw, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: message})
}
