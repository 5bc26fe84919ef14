package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/admission/plugins"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/client"
	"podium/pkg/daemon"
	"podium/pkg/scheduler"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
)

// pipes is an in-process network with one server.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accept <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// realWorld starts the real API server on the memory store and returns a client.
func realWorld(t testing.TB) *client.Client {
	s, store, network := scheme.New(), memory.New(), newPipes()
	cidr := netip.MustParsePrefix("10.96.0.0/16")
	server, err := apiserver.New(apiserver.Config{
		Scheme: s, Store: store, Log: slog.New(slog.DiscardHandler), Listener: network, ServiceCIDR: cidr,
		Kinds:     registry.Kinds(s, registry.Config{Store: store, ServiceCIDR: cidr, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now}),
		Admission: plugins.Config{Disable: []string{"TaintNodesByCondition"}}, // no node lifecycle controller runs here to remove the taint
		Authenticator: authn.Func(func(*http.Request) (*request.User, error) {
			return &request.User{Name: "test", Groups: []string{"system:masters", "system:authenticated"}}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DialContext: network.dial}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("apiserver: %v", err)
		}
	})
	c, err := client.New(s, client.Config{Servers: []string{"http://api"}, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := client.For[*corev1.ServiceAccount](c).Create(t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}})
		if err == nil {
			return c
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func run(t testing.TB, cfg scheduler.Config) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- scheduler.Run(ctx, cfg) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("scheduler: %v", err)
		}
	}
}

func realPod(name, cpu string) *corev1.Pod {
	p := pod(name, cpu)
	p.Namespace, p.UID = "default", ""
	p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = "c", "image"
	return p
}

func addNode(t testing.TB, c *client.Client, n *corev1.Node) {
	t.Helper()
	nodes := client.For[*corev1.Node](c)
	made, err := nodes.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	made.Status = n.Status
	if _, err := nodes.UpdateStatus(t.Context(), made); err != nil {
		t.Fatal(err)
	}
}

func TestOnTheRealAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := realWorld(t)
		pods := client.For[*corev1.Pod](c).In("default")
		stop := run(t, scheduler.Config{Client: c, Election: daemon.Election{LeaderElect: true, Identity: "me"}})
		addNode(t, c, node("a", "1", "4Gi"))
		tainted := node("b", "4", "4Gi")
		tainted.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
		addNode(t, c, tainted)
		for _, name := range []string{"p1", "p2"} {
			if _, err := pods.Create(t.Context(), realPod(name, "1")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		p1, err := pods.Get(t.Context(), "p1")
		if err != nil {
			t.Fatal(err)
		}
		if p1.Spec.NodeName != "a" || condition(p1) != "True  " {
			t.Errorf("p1 is on %q: %q", p1.Spec.NodeName, condition(p1))
		}
		p2, err := pods.Get(t.Context(), "p2")
		if err != nil {
			t.Fatal(err)
		}
		const why = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {k: v}." +
			" preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling." +
			" a: Insufficient cpu; b: node(s) had untolerated taint {k: v}."
		if p2.Spec.NodeName != "" || condition(p2) != "False Unschedulable "+why {
			t.Errorf("p2 is on %q: %q", p2.Spec.NodeName, condition(p2))
		}
		list, err := client.For[*corev1.Event](c).In("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, e := range list.Items {
			told = append(told, e.InvolvedObject.Name+" "+e.Reason+" "+e.Message)
		}
		want := []string{"p1 Scheduled Successfully assigned default/p1 to a", "p2 FailedScheduling " + why}
		if strings.Join(told, "\n") != strings.Join(want, "\n") {
			t.Errorf("told: %q", told)
		}
		zero := int64(0)
		if err := pods.Delete(t.Context(), "p1", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if p2, err = pods.Get(t.Context(), "p2"); err != nil || p2.Spec.NodeName != "a" || condition(p2) != "True  " {
			t.Errorf("p2 is on %q: %q (%v)", p2.Spec.NodeName, condition(p2), err)
		}
		stop()
	})
}

func condition(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message)
		}
	}
	return "none"
}

// BenchmarkThroughCluster schedules 1,000 pods on 100 nodes through the real API server:
// created, watched, bound, observed as bound.
func BenchmarkThroughCluster(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		c := realWorld(b)
		for i := range 100 {
			addNode(b, c, node(fmt.Sprint("n", i), "32", "64Gi"))
		}
		pods := client.For[*corev1.Pod](c).In("default")
		var g errgroup.Group
		for w := range 10 {
			g.Go(func() error {
				for i := range 100 {
					if _, err := pods.Create(b.Context(), realPod(fmt.Sprint("p", w*100+i), "10m")); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		stop := run(b, scheduler.Config{Client: c})
		for {
			list, err := pods.List(b.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=", Limit: 1})
			if err != nil {
				b.Fatal(err)
			}
			if len(list.Items) == 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(1000*b.N)/b.Elapsed().Seconds(), "pods/s")
}

// TestGatedPodWaits creates a pod with a scheduling gate and anti-affinity to pods of its own
// revision: it is bound once the gate is removed, beside a pod of another revision.
func TestGatedPodWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := realWorld(t)
		pods := client.For[*corev1.Pod](c).In("default")
		stop := run(t, scheduler.Config{Client: c})
		a := node("a", "4", "4Gi")
		a.Labels = map[string]string{corev1.LabelHostname: "a"}
		addNode(t, c, a)
		create := func(name, revision string, gates ...corev1.PodSchedulingGate) *corev1.Pod {
			t.Helper()
			p := realPod(name, "1")
			p.Labels, p.Spec.SchedulingGates = map[string]string{"app": "x", "revision": revision}, gates
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, MatchLabelKeys: []string{"revision"}}}}}
			if _, err := pods.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			p, err := pods.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if p := create("p1", "1"); p.Spec.NodeName != "a" {
			t.Errorf("p1: %q", condition(p))
		}
		if p := create("p2", "1"); p.Spec.NodeName != "" || !strings.Contains(condition(p), "node(s) didn't match pod anti-affinity rules") {
			t.Errorf("p2 is on %q: %q", p.Spec.NodeName, condition(p))
		}
		gated := create("p3", "2", corev1.PodSchedulingGate{Name: "example.com/wait"})
		if gated.Spec.NodeName != "" || condition(gated) != "False SchedulingGated Scheduling is blocked due to non-empty scheduling gates" {
			t.Errorf("p3 is on %q: %q", gated.Spec.NodeName, condition(gated))
		}
		err := pods.Post(t.Context(), "p3", "binding", &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p3"}, Target: corev1.ObjectReference{Name: "a"}}, nil)
		if err == nil || !strings.Contains(err.Error(), "has non-empty .spec.schedulingGates") {
			t.Errorf("binding of a gated pod: %v", err)
		}
		gated.Spec.SchedulingGates = nil
		if _, err := pods.Update(t.Context(), gated); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if p, err := pods.Get(t.Context(), "p3"); err != nil || p.Spec.NodeName != "a" {
			t.Errorf("p3 without its gate is on %q: %q (%v)", p.Spec.NodeName, condition(p), err)
		}
		stop()
	})
}
