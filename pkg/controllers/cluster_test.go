package controllers_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/aggregation"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/client"
	"podium/pkg/controllers"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
)

// cluster is a real API server on the memory store and the controllers, in the test's
// bubble, with simulated kubelets and a simulated scheduler.
type cluster struct {
	*client.Client
	t        *testing.T
	scheme   *scheme.Scheme
	network  *network
	server   *apiserver.Server
	backend  registry.Backend // the server, from inside
	tokenKey *ecdsa.PrivateKey
	writes   atomic.Int64 // write requests of the controllers
	requests atomic.Int64
	faults   atomic.Pointer[faults]    // what goes wrong for the controllers
	stale    atomic.Bool               // discovery of widgetKind's group fails for them
	config   func(*controllers.Config) // changes the configuration of the controllers; nil: the default
	remote   *network                  // of the API server behind the Services that APIServices name

	stop context.CancelFunc // stops the running controllers
	done chan error

	mu   sync.Mutex
	down map[string]bool // nodes whose kubelets do nothing
}

// fault is a fault that is injected into a write.
type fault int

const (
	none      fault = iota
	lost            // the request is not sent
	unheard         // the request succeeds, the response is lost
	crashHere       // the controllers are killed before the request
)

// inCluster runs a test in a bubble with a cluster of that many nodes. change modifies the
// configuration of the API server.
func inCluster(t *testing.T, nodes int, f func(t *testing.T, c *cluster), change ...func(*apiserver.Config)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, change...)
		c.startControllers()
		for i := range nodes {
			c.addNode(fmt.Sprintf("node-%d", i))
		}
		c.background(c.schedule)
		f(t, c)
	})
}

func newCluster(t *testing.T, change ...func(*apiserver.Config)) *cluster {
	c := &cluster{t: t, scheme: scheme.New(), network: newNetwork(), remote: newNetwork(), down: map[string]bool{}}
	store := memory.New()
	cidr := netip.MustParsePrefix("10.96.0.0/16")
	log := slog.New(slog.DiscardHandler)
	access, err := apiserver.NewAccess(apiserver.AccessConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := apiserver.Config{
		Access: access,
		Scheme: c.scheme, Store: store, Log: log, Listener: c.network,
		Kinds: registry.Kinds(c.scheme, registry.Config{
			Access: access, Store: store, ServiceCIDR: cidr, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now,
		}),
		Authenticator: authn.Func(func(r *http.Request) (*request.User, error) {
			if name := r.Header.Get(userHeader); name != "" {
				return &request.User{Name: name, Groups: []string{request.Authenticated}}, nil
			}
			return &request.User{Name: "test", Groups: []string{request.Masters, request.Authenticated}}, nil
		}),
		ServiceCIDR: cidr,
		Aggregation: aggregation.Config{Dial: c.remote.transport().DialContext},
	}
	for _, f := range change {
		f(&cfg)
	}
	server, err := apiserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.server, c.backend = server, server.Backend()
	if c.tokenKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	c.background(server.Run)
	c.Client = c.client("", nil)
	c.until(time.Minute, "the apiserver is up", func() bool {
		_, _, err := c.Do(t.Context(), client.Request{Method: http.MethodGet, Path: "/readyz"})
		return err == nil
	})
	return c
}

// background runs f until the test ends.
func (c *cluster) background(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("in the background: %v", err)
		}
	})
}

// userHeader is the header with the user name; without it the user is an administrator.
const userHeader = "X-Test-User"

func (c *cluster) client(user string, around func(http.RoundTripper) http.RoundTripper) *client.Client {
	var transport http.RoundTripper = c.network.transport()
	c.t.Cleanup(transport.(*http.Transport).CloseIdleConnections)
	if around != nil {
		transport = around(transport)
	}
	cl, err := client.New(c.scheme, client.Config{Servers: []string{"http://api"}, Transport: transport, Header: http.Header{userHeader: {user}}})
	if err != nil {
		c.t.Fatal(err)
	}
	return cl
}

// startControllers starts a kube-controller-manager as a new process would.
func (c *cluster) startControllers() {
	cfg := controllers.Default()
	cfg.LeaderElect = false
	cfg.RootCA = []byte("a certificate")
	cfg.TokenKey = func() crypto.Signer { return c.tokenKey }
	cfg.Log = testLog()
	if c.config != nil {
		c.config(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	spied := func(next http.RoundTripper) http.RoundTripper { return &spy{c, ctx, next} }
	cfg.Client = c.client("system:kube-controller-manager", spied)
	cfg.ClientFor = func(account string) (*client.Client, error) {
		return c.client("system:serviceaccount:kube-system:"+account, spied), nil
	}
	done := make(chan error, 1)
	c.stop, c.done = cancel, done
	go func() { done <- controllers.Run(ctx, cfg) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("controllers: %v", err)
		}
		done <- nil
	})
}

// restartControllers kills the controllers and starts new ones.
func (c *cluster) restartControllers() { c.restartControllersAfter(0) }

func (c *cluster) restartControllersAfter(pause time.Duration) {
	c.stop()
	<-c.done
	c.done <- nil
	time.Sleep(pause)
	c.startControllers()
}

func testLog() *slog.Logger {
	if os.Getenv("CONTROLLERS_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// spy counts the controllers' writes and injects faults.
type spy struct {
	c    *cluster
	ctx  context.Context // ends when these controllers are killed
	next http.RoundTripper
}

func (s *spy) RoundTrip(r *http.Request) (*http.Response, error) {
	s.c.requests.Add(1)
	if r.Method == http.MethodGet {
		if r.URL.Path == "/apis" && s.c.stale.Load() {
			return staleDiscovery(), nil
		}
		resp, err := s.allowed(r)
		if f := s.c.faults.Load(); err == nil && f != nil && r.URL.Query().Get("watch") == "true" {
			resp.Body = &lagging{resp.Body, f.lag}
		}
		return resp, err
	}
	event := strings.Contains(r.URL.Path, "/events")
	if !event {
		s.c.writes.Add(1)
	}
	f := s.c.faults.Load()
	if f == nil || event {
		return s.allowed(r)
	}
	switch f.next() {
	case crashHere:
		<-s.ctx.Done() // the response never arrives
		return nil, s.ctx.Err()
	case lost:
		return nil, errors.New("connection reset")
	case unheard:
		resp, err := s.next.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		return nil, errors.New("connection reset by peer")
	}
	return s.allowed(r)
}

// allowed sends the request. The test fails if a controller lacks a permission.
func (s *spy) allowed(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusForbidden {
		body, readErr := io.ReadAll(resp.Body)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
		if readErr != nil || bytes.Contains(body, []byte(" cannot ")) || bytes.Contains(body, []byte("attempting to grant")) {
			s.c.t.Errorf("%s %s: %s", r.Method, r.URL.Path, body)
		}
	}
	return resp, err
}

// lagging is a watch whose events arrive late or not at all.
type lagging struct {
	io.ReadCloser
	lag func() (time.Duration, bool)
}

func (l *lagging) Read(p []byte) (int, error) {
	late, broken := l.lag()
	time.Sleep(late)
	if broken {
		l.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return l.ReadCloser.Read(p)
}

// until waits, in virtual time, until so returns true. It asks seldom if it may take long: each
// answer of the API server costs real time.
func (c *cluster) until(limit time.Duration, what string, so func() bool) {
	c.t.Helper()
	period := 10 * time.Millisecond
	if limit > time.Minute {
		period = limit / 1000
	}
	c.poll(limit, period, what, so)
}

// poll is until with the time between two questions.
func (c *cluster) poll(limit, period time.Duration, what string, so func() bool) {
	c.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(period) {
		if so() {
			return
		}
	}
	c.t.Fatalf("after %s it is not so that %s\n%s", limit, what, c.dump())
}

// dump returns the state of the cluster for a failed test.
func (c *cluster) dump() string {
	var b strings.Builder
	for _, d := range c.deployments() {
		fmt.Fprintf(&b, "deployment %s: %+v\n", d.Name, d.Status)
	}
	for _, rs := range c.sets() {
		fmt.Fprintf(&b, "replicaset %s: wants %d, %+v\n", rs.Name, *rs.Spec.Replicas, rs.Status)
	}
	for _, p := range c.pods("") {
		fmt.Fprintf(&b, "pod %s on %q: %s deleted=%v %v\n", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp, p.Status.Conditions)
	}
	events, _ := client.For[*corev1.Event](c.Client).List(context.Background(), metav1.ListOptions{})
	if events != nil {
		for _, e := range events.Items {
			fmt.Fprintf(&b, "event %s %s: %s: %s\n", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
	return b.String()
}

// quiet fails the test if the controllers write anything within five minutes.
func (c *cluster) quiet() {
	c.t.Helper()
	time.Sleep(time.Minute) // pods that are ending need time
	before := c.writes.Load()
	time.Sleep(5 * time.Minute)
	if n := c.writes.Load() - before; n > 0 {
		c.t.Errorf("%d writes where nothing changed", n)
	}
}

func all[T scheme.Object](c *cluster, selector string) []T {
	list, err := client.For[T](c.Client).List(context.Background(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

func (c *cluster) pods(selector string) []*corev1.Pod { return all[*corev1.Pod](c, selector) }

// events returns all events once those of what has been seen so far are written.
func (c *cluster) events() []*corev1.Event {
	time.Sleep(time.Second)
	return all[*corev1.Event](c, "")
}

func (c *cluster) sets() []*appsv1.ReplicaSet        { return all[*appsv1.ReplicaSet](c, "") }
func (c *cluster) deployments() []*appsv1.Deployment { return all[*appsv1.Deployment](c, "") }
func (c *cluster) deployment(name string) *appsv1.Deployment {
	d, err := client.For[*appsv1.Deployment](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return d
}

func create[T scheme.Object](c *cluster, obj T) T {
	c.t.Helper()
	if obj.GetNamespace() == "" && scheme.KindOf[T](c.scheme).Namespaced {
		obj.SetNamespace("default")
	}
	got, err := client.For[T](c.Client).Create(context.Background(), obj)
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

// edit changes an object as kubectl edit would.
func edit[T scheme.Object](c *cluster, name string, change func(T)) {
	c.t.Helper()
	r := client.For[T](c.Client).In("default")
	for {
		obj, err := r.Get(context.Background(), name)
		if err != nil {
			c.t.Fatal(err)
		}
		change(obj)
		_, err = r.Update(context.Background(), obj)
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			c.t.Fatal(err)
		}
	}
}

func remove[T scheme.Object](c *cluster, name string, policy metav1.DeletionPropagation) {
	c.t.Helper()
	r := client.For[T](c.Client)
	if scheme.KindOf[T](c.scheme).Namespaced {
		r = r.In("default")
	}
	if err := r.Delete(context.Background(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		c.t.Fatal(err)
	}
}

// deploymentOf returns a deployment of pods with one container of this image.
func deploymentOf(name string, replicas int32, image string, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: image, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				}}},
			},
		},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func rolling(surge, unavailable intstr.IntOrString) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable},
		}
	}
}

func recreate(d *appsv1.Deployment) {
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
}

func setImage(image string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image }
}

// rolledOut reports whether `kubectl rollout status` would succeed.
func (c *cluster) rolledOut(name string) bool {
	d := c.deployment(name)
	want := *d.Spec.Replicas
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == want &&
		d.Status.Replicas == want && d.Status.AvailableReplicas == want
}

func images(pods []*corev1.Pod) string {
	count := map[string]int{}
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			count[p.Spec.Containers[0].Image]++
		}
	}
	var out []string
	for image, n := range count {
		out = append(out, fmt.Sprintf("%s:%d", image, n))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// network is an in-process network.
type network struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newNetwork() *network { return &network{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { n.once.Do(func() { close(n.closed) }); return nil }
func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) transport() *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: 100,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			select {
			case n.accept <- theirs:
				return ours, nil
			case <-n.closed:
				return nil, errors.New("connection refused")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
}
