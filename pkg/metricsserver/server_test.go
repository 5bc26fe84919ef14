package metricsserver

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
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/client/revocation"
	"podium/pkg/metricsserver/usage"
	"podium/pkg/scheme"
)

// kubelets measure pods that use half a core since the Unix epoch.
type kubelets struct {
	pods map[string][]string // names in the namespace default, by node

	mu    sync.Mutex
	hangs map[string]bool
	asked map[string]int
}

func (k *kubelets) hang(node string, hangs bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hangs[node] = hangs
}

func (k *kubelets) count(node string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked[node]
}

// sample implements Config.Sample, with a timeout of 10 s.
func (k *kubelets) sample(ctx context.Context, node *corev1.Node) (usage.Sample, error) {
	k.mu.Lock()
	k.asked[node.Name]++
	hangs := k.hangs[node.Name]
	k.mu.Unlock()
	if hangs {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
		return usage.Sample{}, errors.New("the kubelet hangs")
	}
	now := time.Now()
	p := usage.Point{Time: now, CPU: float64(now.UnixMilli()) / 2000, Memory: 1 << 20}
	out := usage.Sample{Node: &p, Pods: map[types.NamespacedName]map[string]usage.Point{}}
	for _, pod := range k.pods[node.Name] {
		c := p
		c.Start = time.Unix(0, 0)
		out.Pods[types.NamespacedName{Namespace: "default", Name: pod}] = map[string]usage.Point{"main": c}
	}
	return out, nil
}

// rig is a server in a bubble, over an API in memory. Requests come from a front proxy.
type rig struct {
	*server
	t        *testing.T
	api      *client.Client
	kubelets *kubelets
	front    *x509.Certificate
}

func create[T scheme.Object](t *testing.T, c *client.Client, obj T) T {
	t.Helper()
	out, err := client.For[T](c).In(obj.GetNamespace()).Create(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func registered() *apiregistrationv1.APIService {
	port := int32(443)
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiService}, Spec: apiregistrationv1.APIServiceSpec{
		Group: "metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100,
		Service: &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server", Port: &port},
	}}
}

// newRig starts a server. Call it in a bubble.
func newRig(t *testing.T, k *kubelets, objects ...func(c *client.Client)) *rig {
	t.Helper()
	k.hangs, k.asked = map[string]bool{}, map[string]int{}
	r := &rig{t: t, api: clienttest.New().Client(t), kubelets: k}
	settings := r.proxies()
	create(t, r.api, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: revocation.Namespace, Name: revocation.ConfigMap}, Data: settings})
	for _, f := range objects {
		f(r.api)
	}
	var err error
	r.server, err = newServer(Config{
		Client: r.api, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Sample: k.sample,
		Resolution: 15 * time.Second, RequestTimeout: 10 * time.Second, Service: types.NamespacedName{Namespace: "kube-system", Name: "metrics-server"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	synctest.Wait()
	return r
}

// proxies makes the certificate of the front proxy, and returns the settings that name
// its CA, which is itself.
func (r *rig) proxies() map[string]string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.front, err = x509.ParseCertificate(der); err != nil {
		r.t.Fatal(err)
	}
	return map[string]string{
		"requestheader-client-ca-file":   string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`,
	}
}

// get answers a request that the front proxy passes on for an administrator.
func (r *rig) get(path string, into any) int {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req.Header = http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{r.front}}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		r.t.Fatalf("GET %s: %d, %v", path, w.Code, err)
	}
	return w.Code
}

// measuredNodes returns the names of the nodes whose usage is served.
func (r *rig) measuredNodes() string {
	var list metricsv1beta1.NodeMetricsList
	r.get("/apis/metrics.k8s.io/v1beta1/nodes", &list)
	var names []string
	for _, m := range list.Items {
		// The kubelets' counters have milliseconds, and MilliValue rounds up.
		if cpu := m.Usage.Cpu().MilliValue(); cpu < 500 || cpu > 501 || m.Window.Duration <= 0 {
			r.t.Errorf("%s uses %dm in %s", m.Name, cpu, m.Window.Duration)
		}
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

func (r *rig) measuredPods() string {
	var list metricsv1beta1.PodMetricsList
	r.get("/apis/metrics.k8s.io/v1beta1/pods", &list)
	var names []string
	for _, m := range list.Items {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

func pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

func TestAKubeletThatHangsHidesNoOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &kubelets{pods: map[string][]string{"a": {"web"}, "b": {"db"}}}, func(c *client.Client) {
			create(t, c, registered())
			create(t, c, node("a"))
			create(t, c, node("b"))
			create(t, c, pod("web", "a"))
			create(t, c, pod("db", "b"))
		})
		if r.health.Ready() == nil {
			t.Error("ready before anything was measured")
		}
		pass(20 * time.Second)
		if got := r.measuredNodes() + ", " + r.measuredPods(); got != "a b, db web" {
			t.Errorf("after two samples: %s", got)
		}
		if err := r.health.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		r.kubelets.hang("b", true)
		pass(20 * time.Second)
		if got := r.measuredNodes(); got != "a b" {
			t.Errorf("after one request without an answer: %s", got)
		}
		before := r.kubelets.count("a")
		pass(time.Minute)
		if got := r.measuredNodes() + ", " + r.measuredPods(); got != "a, web" {
			t.Errorf("while the kubelet of b hangs: %s", got)
		}
		if n := r.kubelets.count("a") - before; n != 4 {
			t.Errorf("the kubelet of a was asked %d times in a minute", n)
		}
		r.kubelets.hang("b", false)
		pass(30 * time.Second)
		if got := r.measuredNodes() + ", " + r.measuredPods(); got != "a b, db web" {
			t.Errorf("after the kubelet of b has recovered: %s", got)
		}
	})
}

func TestNodesAndPodsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &kubelets{pods: map[string][]string{"a": {"web", "liar"}, "b": {"db", "web"}}}, func(c *client.Client) { create(t, c, node("a")) })
		nodes := client.For[*corev1.Node](r.api)
		create(t, r.api, pod("web", "a"))
		create(t, r.api, pod("db", "b"))
		pass(20 * time.Second)
		if got := r.measuredNodes() + ", " + r.measuredPods(); got != "a, web" {
			t.Errorf("at first: %s", got)
		}
		create(t, r.api, node("b"))
		create(t, r.api, pod("liar", "b")) // a's kubelet knows of it, b's does not
		pass(20 * time.Second)
		if got := r.measuredNodes() + ", " + r.measuredPods(); got != "a b, db web" {
			t.Errorf("after node b: %s", got)
		}
		for range 2 { // the second time, the worker of the first may still be waiting
			if err := nodes.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := r.measuredNodes(); got != "a" {
				t.Errorf("after the end of b: %s", got)
			}
			create(t, r.api, node("b"))
		}
		pass(30 * time.Second)
		if got := r.measuredNodes(); got != "a b" {
			t.Errorf("after the return of b: %s", got)
		}
		if err := nodes.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		before := r.kubelets.count("b")
		pass(time.Hour)
		if n := r.kubelets.count("b") - before; n != 0 {
			t.Errorf("a deleted node's kubelet was asked %d times", n)
		}
	})
}

// TestCertificateIsPublishedAndRotated: API servers trust each certificate before it is
// served.
func TestCertificateIsPublishedAndRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &kubelets{})
		services := client.For[*apiregistrationv1.APIService](r.api)
		served := func() *x509.Certificate {
			c, err := r.cfg.Certificate()
			if err != nil {
				t.Fatal(err)
			}
			return c.Leaf
		}
		bundle := func() []*x509.Certificate {
			t.Helper()
			s, err := services.Get(t.Context(), apiService)
			if err != nil {
				t.Fatal(err)
			}
			certs := revocation.ParseCertificates(s.Spec.CABundle)
			roots := x509.NewCertPool()
			for _, c := range certs {
				roots.AddCert(c)
			}
			opts := x509.VerifyOptions{Roots: roots, DNSName: "metrics-server.kube-system.svc", CurrentTime: time.Now()}
			if _, err := served().Verify(opts); err != nil {
				t.Errorf("API servers do not trust the certificate: %v", err)
			}
			return certs
		}
		if r.identity.ready() == nil {
			t.Error("ready without an APIService")
		}
		create(t, r.api, registered())
		synctest.Wait()
		first := served()
		if got := bundle(); len(got) != 1 || r.identity.ready() != nil {
			t.Errorf("the caBundle has %d certificates; ready: %v", len(got), r.identity.ready())
		}
		pass(certificateLife - renewBefore + 2*checkEvery)
		if got := bundle(); len(got) != 2 || served().Equal(first) {
			t.Errorf("after the rotation, the caBundle has %d certificates; the old one is served: %v", len(got), served().Equal(first))
		}
		if err := services.Delete(t.Context(), apiService, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		create(t, r.api, registered())
		synctest.Wait()
		if got := bundle(); len(got) != 1 {
			t.Errorf("the caBundle of a new APIService has %d certificates", len(got))
		}
		foreign := registered()
		foreign.Spec.Service.Name = "another"
		if err := services.Delete(t.Context(), apiService, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		create(t, r.api, foreign)
		pass(time.Minute)
		if s, err := services.Get(t.Context(), apiService); err != nil || len(s.Spec.CABundle) > 0 || r.identity.ready() == nil {
			t.Errorf("another server's APIService: %d bytes of caBundle, %v; ready: %v", len(s.Spec.CABundle), err, r.identity.ready())
		}
	})
}

func TestBundleWith(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	issue := func(at time.Time) *x509.Certificate {
		c, err := (&identity{service: types.NamespacedName{Namespace: "ns", Name: "s"}, now: func() time.Time { return at }}).issue()
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf
	}
	encoded := func(certs ...*x509.Certificate) (out []byte) {
		for _, c := range certs {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
		return out
	}
	own, old := issue(now), issue(now.Add(-certificateLife))
	var others []*x509.Certificate
	for range maxBundle + 3 {
		others = append(others, issue(now))
	}
	for name, row := range map[string]struct {
		reason     string
		have, want []byte
	}{
		"Empty":    {"the first certificate", nil, encoded(own)},
		"Replica":  {"other replicas stay trusted", encoded(others[0]), encoded(own, others[0])},
		"Present":  {"nothing is written when nothing changes", encoded(others[0], own), encoded(others[0], own)},
		"Expired":  {"an expired certificate is dropped", encoded(own, old), encoded(own)},
		"TooMany":  {"the bundle is bounded", encoded(others...), encoded(append([]*x509.Certificate{own}, others[:maxBundle-1]...)...)},
		"Nonsense": {"what is no certificate is replaced", []byte("?"), encoded(own)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(string(row.want), string(bundleWith(row.have, own, now))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.reason, diff)
			}
		})
	}
}
