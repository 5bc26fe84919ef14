package podnetwork

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"podium/pkg/netrules"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
)

// guarded is a node with two pods from the real CNI plugin and kube-proxy's rules.
type guarded struct {
	*cniRuntime
	family        services.Family
	planner       iptables.Planner
	pod, other    *place
	podIP, ofPeer netip.Addr
	gateway       netip.Addr
}

func newGuarded(t *testing.T, family services.Family) *guarded {
	t.Helper()
	tc := podRanges[family.String()]
	g := &guarded{cniRuntime: newRuntime(t, tc.pods), family: family, gateway: tc.gateway.Addr()}
	if _, err := exec.LookPath(g.tool()); err != nil {
		t.Skipf("needs %s (Debian's package: iptables)", g.tool())
	}
	g.pod, g.podIP = g.add("pod")
	g.other, g.ofPeer = g.add("other")
	g.planner = iptables.Planner{Family: family, PodTraffic: "-s " + tc.pods.String()}
	if err := g.node.in(func() error {
		host, err := iptables.NewHost(family)
		if err == nil {
			g.planner.Kernel, err = host.Features(t.Context())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *guarded) tool() string {
	if g.family == services.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// apply writes the planner's rules to the node's kernel.
func (g *guarded) apply() {
	g.Helper()
	set := netrules.NewSet()
	first, last := g.planner.Base()
	set.Put(iptables.First, first)
	set.Put(iptables.Last, last)
	err := g.node.in(func() error {
		host, err := iptables.NewHost(g.family)
		if err == nil {
			_, err = iptables.NewApplier(host, g.planner.Hooks()).Sync(context.Background(), set, true)
		}
		return err
	})
	if err != nil {
		g.Fatal(err)
	}
}

// listen receives datagrams in a place; the channel returns their texts.
func (g *guarded) listen(at *place, to netip.AddrPort) <-chan string {
	g.Helper()
	var c net.PacketConn
	if err := at.in(func() (err error) { c, err = net.ListenPacket("udp", to.String()); return err }); err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { c.Close() })
	heard := make(chan string, 16)
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, _, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			heard <- string(buffer[:n])
		}
	}()
	return heard
}

// send sends a datagram from an address of a place.
func (g *guarded) send(from *place, source netip.Addr, to netip.AddrPort, text string) {
	g.Helper()
	err := from.in(func() error {
		d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}
		c, err := d.Dial("udp", to.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(text))
		return err
	})
	if err != nil {
		g.Fatal(err)
	}
}

// hears returns the texts up to and including last. It fails the test if last does not
// arrive.
func (g *guarded) hears(heard <-chan string, last string) string {
	g.Helper()
	var all []string
	for {
		select {
		case text := <-heard:
			if all = append(all, text); text == last {
				return strings.Join(all, " ")
			}
		case <-time.After(5 * time.Second):
			g.Fatalf("%q was not heard, only %q", last, all)
		}
	}
}

// A pod can send from its own address only, not from that of another pod or of a
// machine outside.
func TestSourceAddresses(t *testing.T) {
	for _, family := range []services.Family{services.IPv4, services.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			g := newGuarded(t, family)
			if !g.planner.Kernel.ReversePath {
				t.Skip("this kernel has no rpfilter match")
			}
			stranger, bits := netip.MustParseAddr("203.0.113.9"), "/32"
			if family == services.IPv6 {
				stranger, bits = netip.MustParseAddr("2001:db8::9"), "/128 nodad"
			}
			g.pod.ip("addr add " + stranger.String() + bits + " dev lo")
			atNode, atPeer := netip.AddrPortFrom(g.gateway, 9), netip.AddrPortFrom(g.ofPeer, 9)
			node, peer := g.listen(g.node, atNode), g.listen(g.other, atPeer)
			speak := func() (string, string) {
				g.send(g.pod, stranger, atPeer, "stranger")
				g.send(g.pod, g.podIP, atPeer, "honest")
				g.pod.ip("addr add " + g.ofPeer.String() + bits + " dev lo")
				g.send(g.pod, g.ofPeer, atNode, "forged")
				g.pod.ip("addr del " + g.ofPeer.String() + "/" + strconv.Itoa(g.ofPeer.BitLen()) + " dev lo")
				g.send(g.pod, g.podIP, atNode, "honest")
				return g.hears(node, "honest"), g.hears(peer, "honest")
			}
			g.apply()
			if node, peer := speak(); node != "forged honest" || peer != "stranger honest" {
				t.Fatalf("unchecked: node hears %q, other pod %q: the attack does not work here", node, peer)
			}
			g.planner.PodLinks = PodLinks
			g.apply()
			if node, peer := speak(); node != "honest" || peer != "honest" {
				t.Errorf("checked: node hears %q, other pod %q", node, peer)
			}
			if got, err := g.pod.seenAs(g.ofPeer); err != nil || got != g.podIP.String() {
				t.Errorf("an honest pod is seen as %q by the other: %v", got, err)
			}
		})
	}
}

// Pods reach only DNS at the addresses of the cloud's metadata service. The node, and
// pods on the host's network, reach everything there.
func TestMetadataAddress(t *testing.T) {
	for family, metadata := range map[services.Family]string{services.IPv4: "169.254.169.254", services.IPv6: "fd00:ec2::254"} {
		t.Run(family.String(), func(t *testing.T) {
			g := newGuarded(t, family)
			cloud, at := newPlace(t), netip.MustParseAddr(metadata)
			own, via, bits := "192.0.2.1/24", "192.0.2.2", "/32"
			if family == services.IPv6 {
				own, via, bits = "2001:db8::1/64 nodad", "2001:db8::2", "/128 nodad"
			}
			g.node.wire("eth0", cloud, "eth0")
			g.node.ip("addr add " + own + " dev eth0")
			cloud.ip("addr add " + strings.Replace(own, "1/", "2/", 1) + " dev eth0")
			cloud.ip("addr add " + metadata + bits + " dev lo")
			g.node.ip("route add " + metadata + " via " + via)
			cloud.ip("route add " + podRanges[family.String()].pods.String() + " via " + strings.Split(own, "/")[0])
			cloud.serve()
			dns := g.listen(cloud, netip.AddrPortFrom(at, 53))

			g.apply()
			if _, err := g.pod.seenAs(at); err != nil {
				t.Fatalf("open: %v", err)
			}
			g.planner.Metadata = iptables.DefaultMetadata()
			g.apply()
			if got, err := g.pod.seenAs(at); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("a pod reaches the metadata service, as %q: %v", got, err)
			}
			if _, err := g.node.seenAs(at); err != nil {
				t.Errorf("the node does not reach the metadata service: %v", err)
			}
			g.send(g.pod, g.podIP, netip.AddrPortFrom(at, 53), "query")
			g.hears(dns, "query")
		})
	}
}

// CVE-2020-8558: neither a neighbour nor a pod reaches programs that listen on the
// node's loopback address, although node ports are served there.
func TestLoopbackIsTheNodesOwn(t *testing.T) {
	g := newGuarded(t, services.IPv4)
	g.planner.LocalhostNodePorts = true
	neighbour := newPlace(t)
	g.node.wire("eth0", neighbour, "eth0")
	g.node.ip("addr add 192.0.2.1/24 dev eth0")
	neighbour.ip("addr add 192.0.2.2/24 dev eth0")
	for what, p := range map[string]*place{"neighbour": neighbour, "pod": g.pod, "node": g.node} {
		if err := p.in(func() error { return Machine{}.Sysctl("net/ipv4/conf/all/route_localnet", "1") }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for p, via := range map[*place]string{neighbour: "192.0.2.1", g.pod: g.gateway.String()} {
		p.ip("addr flush dev lo") // remove its own 127.0.0.1
		p.ip("route add 127.0.0.1/32 via " + via + " dev eth0")
	}
	loopback := netip.MustParseAddrPort("127.0.0.1:9")
	heard := g.listen(g.node, netip.MustParseAddrPort("0.0.0.0:9"))
	speak := func() string {
		g.send(neighbour, netip.MustParseAddr("192.0.2.2"), loopback, "neighbour")
		g.send(neighbour, netip.MustParseAddr("192.0.2.2"), netip.MustParseAddrPort("192.0.2.1:9"), "next")
		first := g.hears(heard, "next")
		g.send(g.pod, g.podIP, loopback, "pod")
		g.send(g.pod, g.podIP, netip.AddrPortFrom(g.gateway, 9), "next")
		second := g.hears(heard, "next")
		g.send(g.node, loopback.Addr(), loopback, "node")
		return first + " " + second + " " + g.hears(heard, "node")
	}
	if got := speak(); got != "neighbour next pod next node" {
		t.Fatalf("without rules it hears %q: the attack does not work here", got)
	}
	g.apply()
	if got := speak(); got != "next next node" {
		t.Errorf("with the rules it hears %q", got)
	}
}
