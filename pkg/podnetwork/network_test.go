package podnetwork

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/netrules"
)

// machine is a Host in memory.
type machine struct {
	mu      sync.Mutex // guards the fields below
	files   map[string]string
	sysctls map[string]string
	routes  []Route
	tunnel  *Tunnel
	entries []Entry
	changed chan struct{}
	far     netip.Addr
	log     []string
}

func (m *machine) WriteFile(path string, data []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[path] == string(data) {
		return false, nil
	}
	m.files[path] = string(data)
	m.log = append(m.log, "write "+path)
	return true, nil
}

func (m *machine) Sysctl(path, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sysctls[path] = value
	return nil
}

func (m *machine) Routes() ([]Route, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.routes), nil
}

func (m *machine) AddRoute(r Route) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Via.IsValid() {
		m.log = append(m.log, "add "+r.Pods.String()+" via "+r.Via.String())
	}
	m.routes = slices.DeleteFunc(m.routes, func(o Route) bool { return o.Pods == r.Pods })
	m.routes = append(m.routes, r)
	return nil
}

func (m *machine) RemoveRoute(r Route) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, "remove "+r.Pods.String()+" via "+r.Via.String())
	m.routes = slices.DeleteFunc(m.routes, func(o Route) bool { return o == r })
	return nil
}

func (m *machine) SetTunnel(t Tunnel) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tunnel != nil && *m.tunnel == t {
		return false, nil
	}
	m.tunnel = &t
	m.log = append(m.log, fmt.Sprintf("tunnel from %s over %s, mtu %d, address %s", t.Local, t.Link, t.MTU, t.Address))
	return true, nil
}

func (m *machine) RemoveTunnel() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tunnel != nil {
		m.log = append(m.log, "remove tunnel")
	}
	m.tunnel, m.entries = nil, nil
	m.routes = slices.DeleteFunc(m.routes, func(r Route) bool { return r.Tunnel })
	return nil
}

func (m *machine) Entries() ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries), nil
}

func (m *machine) AddEntry(e Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, "learn "+text(e))
	m.entries = slices.DeleteFunc(m.entries, func(o Entry) bool { return !e.Forward && !o.Forward && o.IP == e.IP })
	m.entries = append(m.entries, e)
	return nil
}

func (m *machine) RemoveEntry(e Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, "forget "+text(e))
	m.entries = slices.DeleteFunc(m.entries, func(o Entry) bool { return o == e })
	return nil
}

func text(e Entry) string {
	if e.Forward {
		return e.MAC + " is at node " + e.IP.String()
	}
	return e.IP.String() + " has " + e.MAC
}

func (m *machine) RetireBridge(string) error { return nil }

func (m *machine) OnLink(a netip.Addr) (Link, error) {
	return Link{Direct: a != m.far, Name: "eth0", MTU: 1450}, nil
}

func (m *machine) Watch(context.Context) (<-chan struct{}, error) { return m.changed, nil }

func node(name, cidr, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: cidr},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func TestRoutesFollowTheNodes(t *testing.T) {
	all := []*corev1.Node{node("a", "10.244.0.0/24", "192.0.2.1"), node("b", "10.244.1.0/24", "192.0.2.2"), node("c", "10.244.2.0/24", "192.0.2.3")}
	r := func(cidr, via string) Route {
		return Route{Pods: netip.MustParsePrefix(cidr), Via: netip.MustParseAddr(via)}
	}
	own, b, c := Route{Pods: netip.MustParsePrefix("10.244.0.0/24")}, r("10.244.1.0/24", "192.0.2.2"), r("10.244.2.0/24", "192.0.2.3")
	for name, tc := range map[string]struct {
		reason      string
		have        []Route
		add, remove []Route
	}{
		"Fresh":      {"a route to each other node that has pods, and none of this node's addresses takes the default route", nil, []Route{own, b, c}, nil},
		"Settled":    {"nothing to do twice", []Route{c, own, b}, nil, nil},
		"NodeGone":   {"a route of an earlier life leads nowhere", []Route{own, b, c, r("10.244.9.0/24", "192.0.2.9")}, nil, []Route{r("10.244.9.0/24", "192.0.2.9")}},
		"NewAddress": {"the new route replaces the old one: no moment without", []Route{own, r("10.244.1.0/24", "192.0.2.7"), c}, []Route{b}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			peers, _ := peersOf(all, "a", netip.MustParsePrefix("10.244.0.0/24"), netip.Prefix{})
			add, remove := diff(tc.have, routesTo(own.Pods, peers, false))
			if d := cmp.Diff([][]Route{tc.add, tc.remove}, [][]Route{add, remove}, cmp.Comparer(func(a, b Route) bool { return a == b })); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestPeers(t *testing.T) {
	two := node("x", "10.244.7.0/24", "192.0.2.7")
	two.Spec.PodCIDRs = []string{"10.244.7.0/24", "fd00::/64"}
	older := func(n *corev1.Node) *corev1.Node {
		n.CreationTimestamp = metav1.Time{Time: time.Unix(1, 0)}
		return n
	}
	younger := func(n *corev1.Node) *corev1.Node {
		n.CreationTimestamp = metav1.Time{Time: time.Unix(2, 0)}
		return n
	}
	for name, tc := range map[string]struct {
		reason string
		nodes  []*corev1.Node
		want   string // peers, then troubles
	}{
		"Good":        {"a node with range and address is reached", []*corev1.Node{node("b", "10.244.1.0/24", "192.0.2.2")}, "b 10.244.1.0/24 at 192.0.2.2"},
		"NoRange":     {"nobody knows where its pods are", []*corev1.Node{node("b", "", "192.0.2.2")}, "b PodCIDRMissing"},
		"NotARange":   {"nonsense is named", []*corev1.Node{node("b", "10.244.1.0/240", "192.0.2.2")}, "b PodCIDRInvalid"},
		"NoRoom":      {"one address is no range", []*corev1.Node{node("b", "10.244.1.1/32", "192.0.2.2")}, "b PodCIDRInvalid"},
		"OtherFamily": {"one family is served", []*corev1.Node{node("b", "fd00::/64", "192.0.2.2")}, "b PodCIDRInvalid"},
		"WholeWorld":  {"a range outside the cluster's would take everybody's traffic", []*corev1.Node{node("b", "0.0.0.0/0", "192.0.2.2")}, "b PodCIDRInvalid"},
		"NoAddress":   {"there is no way to it", []*corev1.Node{node("b", "10.244.1.0/24", "")}, "b NodeAddressMissing"},
		"OursClaimed": {"this node's own pods stay its own", []*corev1.Node{older(node("b", "10.244.0.128/25", "192.0.2.2"))}, "b PodCIDROverlap"},
		"OlderIsBelieved": {"the older of two that overlap is reached", []*corev1.Node{younger(node("b", "10.244.4.0/24", "192.0.2.2")), older(node("c", "10.244.4.0/23", "192.0.2.3"))},
			"c 10.244.4.0/23 at 192.0.2.3; b PodCIDROverlap"},
		"DualStack": {"the first range is served, and it is said that the other is not", []*corev1.Node{two}, "x 10.244.7.0/24 at 192.0.2.7; x DualStackNotSupported"},
	} {
		t.Run(name, func(t *testing.T) {
			self := younger(node("a", "10.244.0.0/24", "192.0.2.1"))
			peers, troubles := peersOf(append(tc.nodes, self), "a", netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("10.244.0.0/16"))
			var got []string
			for _, p := range peers {
				got = append(got, fmt.Sprintf("%s %s at %s", p.node.Name, p.pods, p.address))
			}
			for _, tr := range troubles {
				got = append(got, tr.node.Name+" "+tr.reason)
			}
			if d := cmp.Diff(tc.want, strings.Join(got, "; ")); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// The tunnel is created, follows the node to another address, and is removed in favour
// of routes.
func TestTunnel(t *testing.T) {
	m := &machine{files: map[string]string{}, sysctls: map[string]string{}}
	n := &Network{cfg: Config{Log: slog.New(slog.DiscardHandler), Host: m, Tunnel: true}}
	own, address := netip.MustParsePrefix("10.244.0.0/24"), netip.MustParseAddr("192.0.2.1")
	b := func(ip string) []peer {
		peers, _ := peersOf([]*corev1.Node{node("a", "10.244.0.0/24", "192.0.2.1"), node("b", "10.244.1.0/24", ip)}, "a", own, netip.Prefix{})
		return peers
	}
	step := func(what string, peers []peer, want ...string) {
		t.Helper()
		for range 2 { // the second call changes nothing
			err := n.tunnel(own, address, peers)
			if err := errors.Join(err, n.routes(routesTo(own, peers, true))); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(want, m.log); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
		m.log = nil
	}
	first, second := mac(netip.MustParseAddr("192.0.2.2")).String(), mac(netip.MustParseAddr("192.0.2.3")).String()
	step("a tunnel is made", b("192.0.2.2"),
		"tunnel from 192.0.2.1 over eth0, mtu 1400, address 10.244.0.0",
		"learn "+first+" is at node 192.0.2.2", "learn 10.244.1.0 has "+first, "add 10.244.1.0/24 via 10.244.1.0")
	step("the other node's address changes", b("192.0.2.3"),
		"learn "+second+" is at node 192.0.2.3", "learn 10.244.1.0 has "+second, "forget "+first+" is at node 192.0.2.2")
	step("the other node goes", nil,
		"forget "+second+" is at node 192.0.2.3", "forget 10.244.1.0 has "+second, "remove 10.244.1.0/24 via 10.244.1.0")
}

func TestLocal(t *testing.T) {
	const conf = `{
  "cniVersion": "0.4.0",
  "name": "podium0",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "mtu": 1450,
      "ipam": {
        "type": "host-local",
        "dataDir": "",
        "ranges": [
          [
            {
              "subnet": "10.244.1.0/24"
            }
          ]
        ],
        "routes": [
          {
            "dst": "0.0.0.0/0"
          }
        ]
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}
`
	m := &machine{files: map[string]string{}, sysctls: map[string]string{}}
	set := netrules.NewSet()
	n := &Network{cfg: Config{
		Log: slog.New(slog.DiscardHandler), Host: m, ConfDir: "/etc/cni/net.d", Name: "podium0",
		ClusterCIDR: netip.MustParsePrefix("10.244.0.0/16"),
		SetRules:    func(f netrules.Fragment) { set.Put("pods", f) },
	}}
	for range 2 {
		if err := n.local(netip.MustParsePrefix("10.244.1.0/24"), netip.MustParseAddr("192.0.2.2")); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"write /etc/cni/net.d/10-podium.conflist"}, m.log); d != "" {
		t.Errorf("written once (-want +got):\n%s", d)
	}
	if d := cmp.Diff(conf, m.files["/etc/cni/net.d/10-podium.conflist"]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	got, _ := set.Rules(egress)
	want := []string{ // one rule masquerades all pods, only for traffic that leaves the cluster
		"-s 10.244.1.0/24 -d 10.244.0.0/16 -j RETURN",
		"-s 10.244.1.0/24 -d 224.0.0.0/4 -j RETURN",
		"-s 10.244.1.0/24 -j MASQUERADE",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if m.sysctls["net/ipv4/ip_forward"] != "1" {
		t.Error("the node does not forward")
	}
}

// New interfaces can have IPv6 addresses, and the kernel forwards their packets.
func TestTheKernelTakesPodsOfIPv6(t *testing.T) {
	m := &machine{files: map[string]string{}, sysctls: map[string]string{}}
	n := &Network{cfg: Config{Log: slog.New(slog.DiscardHandler), Host: m, Name: "podium0", SetRules: func(netrules.Fragment) {}}}
	if err := n.local(netip.MustParsePrefix("fd00:10:244:1::/64"), netip.MustParseAddr("fd00::2")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"net/ipv6/conf/all/forwarding": "1", "net/ipv6/conf/default/disable_ipv6": "0",
	}
	if d := cmp.Diff(want, m.sysctls); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The network follows added, changed and removed nodes within a second, and reports
// each trouble once.
func TestNodesAreFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New().Client(t)
		nodes := client.For[*corev1.Node](api)
		m := &machine{files: map[string]string{}, sysctls: map[string]string{}, changed: make(chan struct{})}
		var log bytes.Buffer
		n := New(Config{
			Node: "a", Client: api, Host: m, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
			SetRules: func(netrules.Fragment) {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		step := func(what string, do func() error, want string) {
			t.Helper()
			if err := do(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			var got []string
			routes, _ := m.Routes()
			for _, r := range routes {
				if r.Via.IsValid() {
					got = append(got, r.Pods.String()+" via "+r.Via.String())
				}
			}
			if d := cmp.Diff(want, strings.Join(got, "; ")); d != "" {
				t.Errorf("%s (-want +got):\n%s", what, d)
			}
		}
		create := func(n *corev1.Node) func() error {
			return func() error { _, err := nodes.Create(ctx, n); return err }
		}
		step("this node comes", create(node("a", "10.244.0.0/24", "192.0.2.1")), "")
		step("another comes", create(node("b", "10.244.1.0/24", "192.0.2.2")), "10.244.1.0/24 via 192.0.2.2")
		step("one comes that claims the same pods", create(node("c", "10.244.1.0/24", "192.0.2.3")), "10.244.1.0/24 via 192.0.2.2")
		step("a node moves", func() error {
			moved, err := nodes.Get(ctx, "b")
			if err != nil {
				return err
			}
			moved.Status.Addresses[0].Address = "192.0.2.9"
			_, err = nodes.UpdateStatus(ctx, moved)
			return err
		}, "10.244.1.0/24 via 192.0.2.9")
		step("somebody takes the routes away", func() error {
			m.mu.Lock()
			m.routes = nil
			m.mu.Unlock()
			m.changed <- struct{}{}
			return nil
		}, "10.244.1.0/24 via 192.0.2.9")
		step("it goes, and who claimed its pods has them", func() error { return nodes.Delete(ctx, "b", metav1.DeleteOptions{}) }, "10.244.1.0/24 via 192.0.2.3")
		time.Sleep(10 * resync)
		if told := strings.Count(log.String(), reasonOverlap); told != 1 {
			t.Errorf("the overlap was told %d times:\n%s", told, &log)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// written returns the number of files.
func (m *machine) written() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.files)
}

// A missing address of a new node is not an error, neither on the node itself nor on
// others. Later it is one.
func TestNewNodeWithoutAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New().Client(t)
		nodes := client.For[*corev1.Node](api)
		m := &machine{files: map[string]string{}, sysctls: map[string]string{}, changed: make(chan struct{})}
		log := &journal{}
		n := New(Config{
			Node: "a", Client: api, Host: m, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			SetRules: func(netrules.Fragment) {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		for _, fresh := range []*corev1.Node{node("a", "10.244.0.0/24", ""), node("b", "10.244.1.0/24", "")} {
			fresh.CreationTimestamp = metav1.Now()
			if _, err := nodes.Create(ctx, fresh); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if m.written() > 0 {
			t.Error("the CNI configuration is there before the MTU is known")
		}
		self, err := nodes.Get(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		self.Status.Addresses[0].Address = "192.0.2.1"
		if _, err := nodes.UpdateStatus(ctx, self); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if m.written() != 1 || log.String() != "" {
			t.Errorf("with an address: %d files, and a log of\n%s", m.written(), log)
		}
		time.Sleep(2 * resync)
		synctest.Wait()
		if told := strings.Count(log.String(), reasonNoAddress); told != 1 {
			t.Errorf("that b has no address was told %d times:\n%s", told, log)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
