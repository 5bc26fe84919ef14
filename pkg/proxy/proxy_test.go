package proxy_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/proxy"
	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
)

// world is a proxy in a bubble with its dependencies.
type world struct {
	*testing.T
	api    *api
	kernel *iptables.Fake
	flows  *flows
	proxy  *proxy.Proxy
	stop   func()

	registry *prometheus.Registry
}

func start(t *testing.T, a *api, k *iptables.Fake) *world {
	w := &world{T: t, api: a, kernel: k, flows: &flows{}, registry: prometheus.NewRegistry()}
	c, err := client.New(a.s, client.Config{Servers: []string{"https://api"}, Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	w.proxy, err = proxy.New(proxy.Config{
		Node: "here", Client: c, Log: slog.New(slog.DiscardHandler), Registry: w.registry,
		Kernel: k, Conntrack: w.flows,
		Rules: proxy.RuleOptions{ClusterCIDR: netip.MustParsePrefix("10.244.0.0/16")},
		Times: proxy.Times{MinSync: 50 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.proxy.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

type flows struct {
	mu    sync.Mutex
	table []conntrack.Flow
}

func (f *flows) set(table ...conntrack.Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table = table
}

func (f *flows) now() []conntrack.Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table
}

func (f *flows) Delete(doomed func(conntrack.Flow) bool) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var kept []conntrack.Flow
	for _, flow := range f.table {
		if !doomed(flow) {
			kept = append(kept, flow)
		}
	}
	n := len(f.table) - len(kept)
	f.table = kept
	return n, nil
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func slice(service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	port, proto := int32(8080), corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &proto}},
		Endpoints:   endpoints,
	}
}

func ready(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, TargetRef: &corev1.ObjectReference{UID: "pod-of-10.244.0.1"}}
}

func leaving(ip string) discoveryv1.Endpoint {
	e, yes, no := ready(ip), true, false
	e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	return e
}

func (w *world) has(text string) bool {
	return strings.Contains(w.kernel.Dump("nat")+w.kernel.Dump("filter"), text)
}

func (w *world) expect(text string, want bool) {
	w.Helper()
	synctest.Wait()
	if w.has(text) != want {
		w.Errorf("rules hold %q: %v, want %v", text, !want, want)
	}
}

func (w *world) lease() *coordinationv1.Lease {
	l, _ := w.api.get("leases/kube-system/kube-proxy-here").(*coordinationv1.Lease)
	return l
}

func TestRulesFollowTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newAPI(), iptables.NewFake())
		defer w.stop()
		time.Sleep(time.Second)
		w.expect("-j MARK --or-mark 0x4000", true)
		w.api.put(service("web", "10.96.0.7"))
		w.expect("default/web has no endpoints", true) // at once: Wait does not advance the time
		time.Sleep(time.Second)
		w.api.put(slice("web", ready("10.244.0.1")))
		w.expect("--to-destination 10.244.0.1:8080", true)
		w.expect("has no endpoints", false)

		w.api.put(slice("web", ready("10.244.0.2"))) // within 50 ms: it waits for the rest of the burst
		w.expect("10.244.0.2:8080", false)
		time.Sleep(60 * time.Millisecond)
		w.expect("10.244.0.2:8080", true)
		w.expect("10.244.0.1:8080", false)

		time.Sleep(time.Second)
		w.api.remove(service("web", "10.96.0.7"))
		w.expect("default/web", false)
	})
}

func TestStrangersRulesAreMendedWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.put(service("web", "10.96.0.7"))
		a.put(slice("web", ready("10.244.0.1")))
		w := start(t, a, iptables.NewFake())
		defer w.stop()
		time.Sleep(3 * time.Second)
		before := w.kernel.Dump("nat")
		lines := w.kernel.Lines()
		time.Sleep(time.Minute)
		if n := w.kernel.Lines(); n != lines {
			t.Errorf("%d lines were written while nothing changed", n-lines)
		}
		w.kernel.Flush("nat", "KUBE-SERVICES")
		w.kernel.Flush("nat", "PREROUTING")
		lost := conntrack.Flow{Protocol: "tcp", Destination: netip.MustParseAddrPort("10.96.0.7:80"), Backend: netip.MustParseAddrPort("10.96.0.7:80")}
		fine := lost
		fine.Backend = netip.MustParseAddrPort("10.244.0.9:8080")
		w.flows.set(lost, fine)
		time.Sleep(2 * time.Second)
		if left := w.flows.now(); len(left) != 1 || left[0] != fine {
			t.Errorf("tracked after the repair: %v, want only what was translated", left)
		}
		if after := w.kernel.Dump("nat"); after != before {
			t.Errorf("not mended:\n%s", after)
		}
	})
}

func TestFailedWriteIsRetriedAndUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newAPI(), iptables.NewFake())
		defer w.stop()
		health := func() (int, string) {
			rec := httptest.NewRecorder()
			w.proxy.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			return rec.Code, rec.Body.String()
		}
		time.Sleep(time.Second)
		if code, body := health(); code != 200 || !strings.Contains(body, `"nodeEligible": true`) {
			t.Errorf("healthz: %d %s", code, body)
		}
		w.kernel.FailWith(func() error { return errors.New("no memory") })
		w.api.put(service("web", "10.96.0.7"))
		time.Sleep(90 * time.Second)
		w.expect("default/web", false)
		if code, body := health(); code != 503 {
			t.Errorf("healthz after 90 s of failures: %d %s", code, body)
		}
		w.kernel.FailWith(nil)
		time.Sleep(35 * time.Second)
		w.expect("default/web has no endpoints", true)
		if code, body := health(); code != 200 {
			t.Errorf("healthz after all: %d %s", code, body)
		}
	})
}

func TestATakeOverChangesNothingThatIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, k := newAPI(), iptables.NewFake()
		a.put(service("web", "10.96.0.7"))
		a.put(slice("web", ready("10.244.0.1")))
		w := start(t, a, k)
		time.Sleep(time.Second)
		before := k.Dump("nat")
		w.stop()
		if k.Dump("nat") != before {
			t.Error("stopping changed the rules")
		}
		a.remove(slice("web"))
		w = start(t, a, k)
		defer w.stop()
		time.Sleep(time.Second)
		w.expect("10.244.0.1", false)
		w.expect("has no endpoints", true)
	})
}

// The kubelet stops a pod only after every proxy has reported that its rules reflect it.
func TestLeaseReportsAppliedRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newAPI(), iptables.NewFake())
		time.Sleep(time.Second)
		w.api.put(service("web", "10.96.0.7"))
		w.api.put(slice("web", ready("10.244.0.1"), ready("10.244.0.2")))
		time.Sleep(time.Second)
		first := w.lease()
		if first == nil || first.Labels["podium.dev/component"] != "kube-proxy" || *first.Spec.LeaseDurationSeconds != 40 {
			t.Fatalf("lease: %+v", first)
		}

		w.api.put(slice("web", leaving("10.244.0.1"), ready("10.244.0.2")))
		revision := w.api.get("endpointslices/default/web-1").GetResourceVersion()
		synctest.Wait() // no time passes: the write is urgent
		if got := w.lease().Annotations["podium.dev/endpoints-applied"]; got != revision {
			t.Errorf("acknowledged %s, want %s at once", got, revision)
		}
		w.expect("10.244.0.1:8080", false)

		time.Sleep(11 * time.Second)
		if !w.lease().Spec.RenewTime.After(first.Spec.RenewTime.Time) {
			t.Error("renew lease failed")
		}

		w.kernel.FailWith(func() error { return errors.New("no memory") })
		w.api.put(slice("web", leaving("10.244.0.1"), leaving("10.244.0.2")))
		time.Sleep(30 * time.Second)
		if got := w.lease().Annotations["podium.dev/endpoints-applied"]; got != revision {
			t.Errorf("acknowledged %s though the rules were not written", got)
		}
		w.stop()
		if w.lease() != nil {
			t.Error("a stopped proxy leaves its lease: kubelets would wait for it")
		}
	})
}

func TestUDPFlowsToDeadEndpointsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newAPI(), iptables.NewFake())
		defer w.stop()
		udp := corev1.ProtocolUDP
		svc := service("dns", "10.96.0.10")
		svc.Spec.Ports[0].Protocol = udp
		sl := slice("dns", ready("10.244.0.1"), ready("10.244.0.2"))
		sl.Ports[0].Protocol = &udp
		w.api.put(svc)
		w.api.put(sl)
		time.Sleep(time.Second)
		flow := func(backend string) conntrack.Flow {
			return conntrack.Flow{Protocol: "udp", Destination: netip.MustParseAddrPort("10.96.0.10:80"), Backend: netip.MustParseAddrPort(backend)}
		}
		other := conntrack.Flow{Protocol: "udp", Destination: netip.MustParseAddrPort("8.8.8.8:80"), Backend: netip.MustParseAddrPort("8.8.8.8:80")}
		w.flows.set(flow("10.244.0.1:8080"), flow("10.244.0.2:8080"), other)
		sl.Endpoints = sl.Endpoints[1:]
		w.api.put(sl)
		time.Sleep(time.Second)
		if left := w.flows.now(); len(left) != 2 {
			t.Errorf("after one endpoint went: %v", left)
		}
		w.api.remove(svc)
		time.Sleep(time.Second)
		if left := w.flows.now(); len(left) != 1 || left[0] != other {
			t.Errorf("after the Service went: %v", left)
		}
	})
}

func TestTheAPIServersAbsenceChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newAPI(), iptables.NewFake())
		defer w.stop()
		w.api.put(service("web", "10.96.0.7"))
		w.api.put(slice("web", ready("10.244.0.1")))
		time.Sleep(time.Second)
		before := w.kernel.Dump("nat")
		w.api.setDown(true)
		time.Sleep(10 * time.Minute)
		w.kernel.Flush("nat", "KUBE-SERVICES")
		time.Sleep(5 * time.Second)
		if w.kernel.Dump("nat") != before {
			t.Error("the rules are not what they were")
		}
		w.api.setDown(false)
		time.Sleep(time.Minute)
		if !w.proxy.Healthy() {
			t.Error("unhealthy though nothing waits")
		}
	})
}

func TestAnAnnouncedAddressIsForServicesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newAPI(), iptables.NewFake())
		defer w.stop()
		time.Sleep(time.Second)
		w.proxy.SetAnnounced([]netip.Addr{netip.MustParseAddr("172.18.1.2"), netip.MustParseAddr("2001:db8::1")})
		w.expect("-d 172.18.1.2/32 ! -p icmp", true)
		w.expect("2001:db8::1", false) // the other address family
		time.Sleep(time.Second)
		w.proxy.SetAnnounced(nil)
		w.expect("172.18.1.2", false)
	})
}

// A Service cannot take the address of the node, of a pod or of another Service as an
// external IP, whichever of the two exists first (CVE-2020-8554).
func TestExternalIPsCaptureNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newAPI(), iptables.NewFake())
		defer w.stop()
		w.api.put(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "here"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
		})
		greedy := service("greedy", "10.96.0.66")
		greedy.Spec.ExternalIPs = []string{"192.0.2.1", "10.244.7.7", "10.96.0.7", "203.0.113.9"}
		w.api.put(service("web", "10.96.0.7"))
		w.api.put(slice("web", ready("10.244.0.1")))
		w.api.put(greedy)
		w.api.put(slice("greedy", ready("10.244.0.66")))
		taken := func(ip string) string {
			return "-d " + ip + "/32 -p tcp -m tcp --dport 80 -m comment --comment \"default/greedy external IP"
		}
		time.Sleep(time.Second)
		w.expect(taken("203.0.113.9"), true)
		for _, ip := range []string{"192.0.2.1", "10.244.7.7", "10.96.0.7"} {
			w.expect(taken(ip), false)
		}
		w.api.remove(service("web", "10.96.0.7"))
		time.Sleep(time.Second)
		w.expect(taken("10.96.0.7"), true)
		w.api.put(service("web", "10.96.0.7"))
		time.Sleep(time.Second)
		w.expect(taken("10.96.0.7"), false)
	})
}
