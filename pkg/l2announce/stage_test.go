package l2announce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/addresslease"
	"podium/pkg/client/clienttest"
	"podium/pkg/scheme"
)

// late is how long after the end of a lifetime the kernel may still answer.
const late = 1250 * time.Millisecond

// lan is a network that fails the test if two interfaces have the same address.
type lan struct {
	t     *testing.T
	began time.Time

	mu    sync.Mutex
	has   map[netip.Addr]map[string]time.Time // when the kernel of a node removes it
	notes []string
}

func (l *lan) note(format string, args ...any) {
	l.notes = append(l.notes, fmt.Sprintf("%.1f ", time.Since(l.began).Seconds())+fmt.Sprintf(format, args...))
}

// port implements Network for one node.
type port struct {
	*lan
	node  string
	reach Reach
	dead  bool // the process has ended: its calls have no effect
}

func (p *port) Reach(netip.Addr) (Reach, error) { return p.reach, nil }

func (p *port) Hold(a netip.Addr, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return io.ErrClosedPipe
	}
	if d%time.Second != 0 || d <= 0 {
		p.t.Errorf("the kernel knows no lifetime of %v", d)
	}
	now := time.Now()
	if p.has[a] == nil {
		p.has[a] = map[string]time.Time{}
	}
	for other, until := range p.has[a] {
		if other != p.node && now.Before(until.Add(late)) {
			p.t.Errorf("%v: %s takes %s while %s may have it until %v\n%s", now.Sub(p.began), p.node, a, other, until.Add(late).Sub(p.began), strings.Join(p.notes, "\n"))
		}
	}
	if now.After(p.has[a][p.node]) {
		p.note("%s has %s", p.node, a)
	}
	p.has[a][p.node] = now.Add(d)
	return nil
}

func (p *port) Drop(a netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return io.ErrClosedPipe
	}
	if time.Now().Before(p.has[a][p.node]) {
		p.note("%s drops %s", p.node, a)
	}
	delete(p.has[a], p.node)
	return nil
}

func (p *port) Held() ([]netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []netip.Addr
	for a, by := range p.has {
		if time.Now().Before(by[p.node]) {
			out = append(out, a)
		}
	}
	return out, nil
}

func (p *port) Announce(a netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := p.has[a][p.node]; !p.dead && time.Now().After(until.Add(late)) {
		p.t.Errorf("%s says that it has %s, which it has not", p.node, a)
	}
	return nil
}

// who returns the node that has an address; "" if there is none.
func (l *lan) who(a netip.Addr) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, until := range l.has[a] {
		if time.Now().Before(until) {
			return node
		}
	}
	return ""
}

// stage is a cluster of announcers in one bubble.
type stage struct {
	*lan
	api *clienttest.Server
	one client.Resource[*coordinationv1.Lease]

	faults   sync.Mutex
	before   map[string]func(*http.Request) error // faults of requests by node
	after    map[string]func() error              // faults of responses by node
	notReady bool
	leaving  bool

	running map[string]*running
	svc     *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

type running struct {
	port   *port
	cancel func()
	done   chan struct{}
	a      *Announcer
}

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func newStage(t *testing.T, nodes ...string) *stage {
	s := &stage{
		lan: &lan{t: t, began: time.Now(), has: map[netip.Addr]map[string]time.Time{}},
		api: clienttest.New(), before: map[string]func(*http.Request) error{}, after: map[string]func() error{},
		running: map[string]*running{},
		svc:     &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}},
	}
	s.api.Before = func(r *http.Request) (*http.Response, error) {
		s.faults.Lock()
		f := s.before[r.Header.Get("User-Agent")]
		s.faults.Unlock()
		if f == nil {
			return nil, nil
		}
		return nil, f(r)
	}
	s.api.After = func(r *http.Request) error {
		s.faults.Lock()
		f := s.after[r.Header.Get("User-Agent")]
		s.faults.Unlock()
		if f == nil {
			return nil
		}
		return f()
	}
	s.one = client.For[*coordinationv1.Lease](s.api.Client(t)).In(addresslease.Namespace)
	for _, n := range nodes {
		s.addNode(n)
		s.start(n)
	}
	return s
}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func (s *stage) addNode(name string) {
	if _, err := client.For[*corev1.Node](s.api.Client(s.t)).Create(s.t.Context(), node(name, corev1.ConditionTrue)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) changeNode(name string, change func(*corev1.Node)) {
	nodes := client.For[*corev1.Node](s.api.Client(s.t))
	n, err := nodes.Get(s.t.Context(), name)
	if err == nil {
		n = n.DeepCopy()
		change(n)
		_, err = nodes.Update(s.t.Context(), n)
	}
	if err != nil {
		s.t.Error(err)
	}
}

// start runs a node's announcer on the same interface as before.
func (s *stage) start(name string) {
	c, err := client.New(scheme.New(), client.Config{Servers: []string{"http://api"}, Transport: s.api, UserAgent: name})
	if err != nil {
		s.t.Fatal(err)
	}
	r := &running{port: &port{lan: s.lan, node: name, reach: OnLink}, done: make(chan struct{})}
	r.a, err = New(Config{
		Node: name, Client: c, Log: slog.New(slog.DiscardHandler), Network: r.port, Ours: func([]netip.Addr) {},
		Service: func(namespace, service string) (*corev1.Service, []*discoveryv1.EndpointSlice) {
			s.faults.Lock()
			defer s.faults.Unlock()
			if (types.NamespacedName{Namespace: namespace, Name: service}) != web {
				return nil, nil
			}
			return s.svc, s.slices
		},
		Ready:   func() bool { s.faults.Lock(); defer s.faults.Unlock(); return !s.notReady },
		Leaving: func() bool { s.faults.Lock(); defer s.faults.Unlock(); return s.leaving },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	r.cancel = cancel
	s.running[name] = r
	go func() {
		defer close(r.done)
		if err := r.a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s: %v", name, err)
		}
	}()
}

// stop ends a node's announcer as SIGTERM does.
func (s *stage) stop(name string) {
	s.running[name].cancel()
	<-s.running[name].done
	delete(s.running, name)
}

// crash ends a node's announcer without a release.
func (s *stage) crash(name string) {
	s.mu.Lock()
	s.running[name].port.dead = true
	s.mu.Unlock()
	s.fault(name, broken, nil)
	s.stop(name)
	s.fault(name, nil, nil)
}

func broken(*http.Request) error { return io.ErrUnexpectedEOF }

// fault sets the faults of a node's requests and responses.
func (s *stage) fault(name string, before func(*http.Request) error, after func() error) {
	s.faults.Lock()
	s.before[name], s.after[name] = before, after
	s.faults.Unlock()
}

// cutOff drops the requests of nodes and ends their watches.
func (s *stage) cutOff(names ...string) {
	for _, n := range names {
		s.fault(n, broken, nil)
	}
	s.api.Break()
}

// serve changes the Service and wakes all announcers.
func (s *stage) serve(policy corev1.ServiceExternalTrafficPolicy, endpoints ...string) {
	s.faults.Lock()
	s.svc = s.svc.DeepCopy()
	s.svc.Spec.ExternalTrafficPolicy = policy
	slice := &discoveryv1.EndpointSlice{}
	for _, n := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{NodeName: &n})
	}
	s.slices = []*discoveryv1.EndpointSlice{slice}
	s.faults.Unlock()
	for _, r := range s.running {
		r.a.Wake(web.Namespace, web.Name)
	}
}

func (s *stage) address(text string) netip.Addr {
	a := netip.MustParseAddr(text)
	if _, err := s.one.Create(s.t.Context(), addresslease.New(a, web)); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// answered waits until a node other than not has the address, and returns the node and
// how long it took.
func (s *stage) answered(a netip.Addr, not string) (string, time.Duration) {
	s.t.Helper()
	began := time.Now()
	for time.Since(began) < time.Minute {
		if who := s.who(a); who != "" && who != not {
			return who, time.Since(began)
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Fatalf("nobody answers for %s\n%s", a, strings.Join(s.notes, "\n"))
	return "", 0
}

// end stops all announcers, so that the bubble can end.
func (s *stage) end() {
	for _, n := range slices.Collect(maps.Keys(s.running)) {
		s.stop(n)
	}
}
