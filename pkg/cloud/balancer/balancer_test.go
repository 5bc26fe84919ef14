package balancer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/addresslease"
	"podium/pkg/client/clienttest"
	"podium/pkg/cloud"
	"podium/pkg/cloud/pool"
)

var _ cloud.LoadBalancers = (*Balancer)(nil)

type stage struct {
	t        *testing.T
	api      *clienttest.Server
	services client.Resource[*corev1.Service]
	leases   client.Resource[*coordinationv1.Lease]
	pools    []pool.Pool
	balancer *Balancer
}

// List stands for an informer that is always up to date.
func (s *stage) List() []*corev1.Service {
	list, err := s.services.In("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Error(err)
		return nil
	}
	return list.Items
}

func newStage(t *testing.T, pools ...string) *stage {
	s := &stage{t: t, api: clienttest.New()}
	c := s.api.Client(t)
	s.services = client.For[*corev1.Service](c).In("shop")
	s.leases = client.For[*coordinationv1.Lease](c).In(addresslease.Namespace)
	for _, text := range pools {
		name, ranges, _ := strings.Cut(text, ":")
		p := pool.Pool{Name: name}
		for _, r := range strings.Split(ranges, ",") {
			parsed, err := pool.ParseRange(r)
			if err != nil {
				t.Fatal(err)
			}
			p.Ranges = append(p.Ranges, parsed)
		}
		s.pools = append(s.pools, p)
	}
	s.balancer = s.another(s)
	return s
}

func (s *stage) another(view interface{ List() []*corev1.Service }) *Balancer {
	return New(Config{Client: s.api.Client(s.t), Services: view, Pools: func(context.Context) ([]pool.Pool, error) { return s.pools, nil }, Log: slog.New(slog.DiscardHandler)})
}

func (s *stage) service(name string, change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, f := range change {
		f(svc)
	}
	svc, err := s.services.Create(s.t.Context(), svc)
	if err != nil {
		s.t.Fatal(err)
	}
	return svc.DeepCopy()
}

// ensure calls Ensure and writes the status, as the service controller does.
func (s *stage) ensure(svc *corev1.Service) string {
	status, err := s.balancer.Ensure(s.t.Context(), svc, nil)
	if err != nil {
		return err.Error()
	}
	svc.Status.LoadBalancer = status
	svc.ResourceVersion = ""
	if _, err := s.services.Update(s.t.Context(), svc); err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, i := range status.Ingress {
		if *i.IPMode != corev1.LoadBalancerIPModeVIP {
			s.t.Errorf("mode %s", *i.IPMode)
		}
		out = append(out, i.IP)
	}
	return strings.Join(out, " ")
}

func (s *stage) remove(svc *corev1.Service) {
	if err := s.balancer.Delete(s.t.Context(), svc); err != nil {
		s.t.Fatal(err)
	}
	if err := s.services.Delete(s.t.Context(), svc.Name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// given lists the addresses that have a Lease, with their Services.
func (s *stage) given() string {
	list, err := s.leases.List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, l := range list.Items {
		c, err := addresslease.Parse(l)
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, c.Address.String()+"="+c.Service.Name)
	}
	return strings.Join(out, " ")
}

// hold makes a node the holder of an address.
func (s *stage) hold(address string) {
	l, err := s.leases.Get(s.t.Context(), addresslease.Name(netip.MustParseAddr(address)))
	if err == nil {
		l = l.DeepCopy()
		addresslease.Hold(l, "node-1", addresslease.Duration)
		_, err = s.leases.Update(s.t.Context(), l)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func ask(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerIP = ip }
}

func families(f ...corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.IPFamilies = f }
}

func from(pool string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{AnnotationPool: pool} }
}

func TestAddressesAreGiven(t *testing.T) {
	s := newStage(t, "first:10.0.0.1-10.0.0.2", "second:10.0.9.0/30,2001:db8::/127")
	for _, row := range []struct {
		name   string
		change []func(*corev1.Service)
		want   string
	}{
		{"a", nil, "10.0.0.1"},
		{"asks", []func(*corev1.Service){ask("10.0.9.1")}, "10.0.9.1"},
		{"asks too late", []func(*corev1.Service){ask("10.0.0.1")}, "spec.loadBalancerIP: 10.0.0.1 is in use by Service shop/a"},
		{"asks elsewhere", []func(*corev1.Service){ask("10.1.1.1")}, "spec.loadBalancerIP: 10.1.1.1 is in none of the address pools that the Service may use: first, second"},
		{"asks for a name", []func(*corev1.Service){ask("ten")}, `spec.loadBalancerIP: "ten" is not an IP address`},
		{"asks in another pool", []func(*corev1.Service){ask("10.0.9.2"), from("first")}, "spec.loadBalancerIP: 10.0.9.2 is in none of the address pools that the Service may use: first"},
		{"asks for another family", []func(*corev1.Service){ask("2001:db8::1")}, "spec.loadBalancerIP: 2001:db8::1 is not of the Service's address families [IPv4]"},
		{"from a pool", []func(*corev1.Service){from("second")}, "10.0.9.0"},
		{"from no pool", []func(*corev1.Service){from("third")}, `annotation podium.dev/address-pool: there is no address pool "third"; there are: first, second`},
		{"six", []func(*corev1.Service){families(corev1.IPv6Protocol)}, "2001:db8::"},
		{"both", []func(*corev1.Service){families(corev1.IPv4Protocol, corev1.IPv6Protocol), ask("2001:db8::1")}, "10.0.0.2 2001:db8::1"},
		{"b", nil, "10.0.9.2"},
		{"c", nil, "10.0.9.3"},
		{"one too many", nil, "no free IPv4 address is left in the address pools first, second: give them more, or delete a Service of type LoadBalancer"},
	} {
		svc := s.service(strings.ReplaceAll(row.name, " ", "-"), row.change...)
		if got := s.ensure(svc); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		if strings.Contains(row.want, " is ") {
			continue
		}
		if got := s.ensure(svc); got != row.want {
			t.Errorf("%s, again: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestAServiceChangesItsMind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "p:10.0.0.1-10.0.0.9")
		web := s.service("web")
		s.ensure(web)
		web.Spec.LoadBalancerIP = "10.0.0.7"
		if got := s.ensure(web); got != "10.0.0.7" || s.given() != "10.0.0.7=web" {
			t.Errorf("%s; given: %s", got, s.given())
		}
		web.Spec.LoadBalancerIP = ""
		if got := s.ensure(web); got != "10.0.0.7" {
			t.Errorf("%s: it has an address and asks for none", got)
		}
		s.remove(web)
		if s.given() != "" {
			t.Errorf("given: %s", s.given())
		}
		s.remove(s.service("never-ensured"))
	})
}

func TestAnAddressFallsSilentBeforeItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "p:10.0.0.1")
		web := s.service("web")
		s.ensure(web)
		s.hold("10.0.0.1") // by a node that is dead and will not release it
		began := time.Now()
		s.remove(web)
		if waited := time.Since(began); waited < addresslease.Duration || waited > addresslease.Duration+time.Second {
			t.Errorf("free after %v: the node may answer for %v", waited, addresslease.Duration)
		}
		next := s.service("next")
		s.ensure(next)
		s.hold("10.0.0.1")
		began = time.Now()
		go func() { // a node that is alive
			time.Sleep(time.Second)
			l, err := s.leases.Get(t.Context(), addresslease.Name(netip.MustParseAddr("10.0.0.1")))
			if err == nil {
				l = l.DeepCopy()
				addresslease.Release(l)
				_, err = s.leases.Update(t.Context(), l)
			}
			if err != nil {
				t.Error(err)
			}
		}()
		s.remove(next)
		if waited := time.Since(began); waited > 1200*time.Millisecond {
			t.Errorf("released after a second, free after %v", waited)
		}
	})
}

func TestARestartFindsWhatWasGiven(t *testing.T) {
	s := newStage(t, "p:10.0.0.1-10.0.0.9")
	web := s.service("web")
	if _, err := s.balancer.Ensure(t.Context(), web, nil); err != nil { // and the daemon ends before it writes the status
		t.Fatal(err)
	}
	if got := s.ensure(s.service("next")); got != "10.0.0.2" {
		t.Errorf("next got %s", got)
	}
	if got := s.ensure(web); got != "10.0.0.1" || s.given() != "10.0.0.1=web 10.0.0.2=next" {
		t.Errorf("%s; given: %s", got, s.given())
	}
	if err := s.leases.Delete(t.Context(), addresslease.Name(netip.MustParseAddr("10.0.0.1")), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := s.ensure(web); got != "10.0.0.1" || s.given() != "10.0.0.1=web 10.0.0.2=next" {
		t.Errorf("a Lease that somebody deleted: %s; given: %s", got, s.given())
	}
}

func TestWhatAServiceLeftBehind(t *testing.T) {
	s := newStage(t, "p:10.0.0.1")
	gone := s.service("gone")
	s.ensure(gone)
	if err := s.services.Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil { // its finalizer was removed manually
		t.Fatal(err)
	}
	if got := s.ensure(s.service("web")); got != "10.0.0.1" || s.given() != "10.0.0.1=web" {
		t.Errorf("%s; given: %s", got, s.given())
	}
}

func TestPoolsThatChange(t *testing.T) {
	s := newStage(t, "p:10.0.0.1")
	web := s.service("web")
	s.ensure(web)
	other := newStage(t, "p:10.0.1.1")
	other.api, other.services, other.leases = s.api, s.services, s.leases
	other.balancer = other.another(s)
	if got := other.ensure(web); got != "10.0.1.1" || s.given() != "10.0.1.1=web" {
		t.Errorf("the operator took the address away: %s; given: %s", got, s.given())
	}
}

// Two daemons allocate at the same time, both of which believe that they are the leader,
// with informers that show nothing.
func TestTwoGiveAtOnce(t *testing.T) {
	s := newStage(t, "p:10.0.0.0/26")
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[string]string{}
	for i := range 60 {
		svc := s.service(fmt.Sprintf("s%02d", i))
		by := s.another(nobody{})
		wg.Go(func() {
			status, err := by.Ensure(t.Context(), svc, nil)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			ip := status.Ingress[0].IP
			if other := got[ip]; other != "" {
				t.Errorf("%s was given to %s and %s", ip, other, svc.Name)
			}
			got[ip] = svc.Name
		})
	}
	wg.Wait()
}

type nobody struct{}

func (nobody) List() []*corev1.Service { return nil }

func TestAnAPIThatFails(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		s := newStage(t, "p:10.0.0.1-10.0.0.2")
		web := s.service("web")
		s.ensure(web)
		before := s.given()
		s.api.Before = func(r *http.Request) (*http.Response, error) {
			if r.Method == method && strings.Contains(r.URL.Path, "/leases") {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, nil
		}
		other := s.service("other")
		if _, err := s.balancer.Ensure(t.Context(), other, nil); err == nil {
			t.Errorf("%s fails, and nobody says so", method)
		}
		s.api.Before = nil
		if s.given() != before {
			t.Errorf("%s: given: %s, before: %s", method, s.given(), before)
		}
	}
	s := newStage(t, "p:10.0.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.balancer.Delete(ctx, s.service("web")); err == nil {
		t.Error("a call ends with its context, and says so")
	}
}
