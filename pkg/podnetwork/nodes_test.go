package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/netrules"
)

// place is a network namespace that is removed with the test.
type place struct {
	*testing.T
	handle netns.NsHandle
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		var err error
		p.handle, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("no network namespace can be made here: %v", err)
	}
	t.Cleanup(func() { p.handle.Close() })
	p.ip("link set lo up")
	return p
}

// in runs f in the namespace. Sockets that f opens stay in it.
func (p *place) in(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(p.handle)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (p *place) ip(words string) { p.Helper(); p.run("", "ip", strings.Fields(words)...) }

func (p *place) run(stdin, program string, args ...string) {
	p.Helper()
	err := p.in(func() error { // a child process starts in the namespace of its parent's thread
		cmd := exec.Command(program, args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %v: %w: %s", program, args, err, out)
		}
		return nil
	})
	if err != nil {
		p.Fatal(err)
	}
}

// wire connects two places by a pair of interfaces.
func (p *place) wire(name string, other *place, otherName string) {
	p.Helper()
	err := p.in(func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500}, PeerName: otherName, PeerNamespace: netlink.NsFd(other.handle)}
		return netlink.LinkAdd(pair)
	})
	if err != nil {
		p.Fatal(err)
	}
	p.ip("link set " + name + " up")
	other.ip("link set " + otherName + " up")
}

// serve answers each connection with the client's address, and echoes datagrams.
func (p *place) serve() {
	p.Helper()
	var l net.Listener
	var d net.PacketConn
	err := p.in(func() (err error) {
		if l, err = net.Listen("tcp", ":7"); err == nil {
			d, err = net.ListenPacket("udp", ":7")
		}
		return err
	})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { l.Close(); d.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Unmap())
			c.Close()
		}
	}()
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := d.ReadFrom(buffer)
			if err != nil {
				return
			}
			d.WriteTo(buffer[:n], from)
		}
	}()
}

// seenAs returns the source address that the server at to sees.
func (p *place) seenAs(to netip.Addr) (string, error) {
	var out []byte
	err := p.in(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, 7).String(), 3*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(3 * time.Second))
		out, err = io.ReadAll(c)
		return err
	})
	return string(out), err
}

// carries sends a datagram with the packet size to an address and waits for the echo.
func (p *place) carries(to netip.Addr, packet int) error {
	headers := 28
	if to.Is6() {
		headers = 48
	}
	return p.in(func() error {
		c, err := net.Dial("udp", netip.AddrPortFrom(to, 7).String())
		if err != nil {
			return err
		}
		defer c.Close()
		buffer := make([]byte, packet-headers)
		if _, err := c.Write(buffer); err != nil {
			return err
		}
		c.SetDeadline(time.Now().Add(3 * time.Second))
		n, err := c.Read(make([]byte, 1<<16))
		if err == nil && n != len(buffer) {
			err = fmt.Errorf("%d of %d bytes came back", n, len(buffer))
		}
		return err
	})
}

// lab is three nodes with one pod each: two nodes on one link and one behind a router.
type lab struct {
	*testing.T
	six     bool
	router  *place
	names   []string
	nodes   []*place
	pods    []*place
	address []netip.Addr // of nodes
	podIP   []netip.Addr
	outside netip.Addr // an address of the router, outside of the cluster
	api     *client.Client
	dirs    []string
	reports []string
}

func (l *lab) text(four, six string) string {
	if l.six {
		return six
	}
	return four
}

func (l *lab) cidr(i int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf(l.text("10.244.%d.0/24", "fd00:10:244:%d::/64"), i))
}

func newLab(t *testing.T, six bool) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip (Debian's package: iproute2)")
	}
	l := &lab{T: t, six: six, router: newPlace(t), names: []string{"a", "b", "c"}, api: clienttest.New().Client(t)}
	bits := l.text("/24", "/64 nodad")
	l.router.ip("link add br0 type bridge")
	l.router.ip("link set br0 up")
	l.router.ip("addr add " + l.text("192.0.2.254", "2001:db8:1::fe") + bits + " dev br0")
	l.router.serve()
	l.outside = netip.MustParseAddr(l.text("203.0.113.1", "2001:db8:f::1"))
	l.router.ip("addr add " + l.outside.String() + l.text("/32", "/128 nodad") + " dev lo")
	l.forward(l.router)
	for i := range l.names {
		n := newPlace(t)
		n.wire("eth0", l.router, "to-"+l.names[i])
		ip, via := l.text("192.0.2.1", "2001:db8:1::1"), l.text("192.0.2.254", "2001:db8:1::fe")
		switch i {
		case 1:
			ip = l.text("192.0.2.2", "2001:db8:1::2")
		case 2:
			ip, via = l.text("198.51.100.3", "2001:db8:2::3"), l.text("198.51.100.254", "2001:db8:2::fe")
			l.router.ip("addr add " + via + bits + " dev to-c")
		}
		if i < 2 {
			l.router.ip("link set to-" + l.names[i] + " master br0")
		}
		n.ip("addr add " + ip + bits + " dev eth0")
		n.ip("route add default via " + via)
		l.nodes, l.address, l.dirs = append(l.nodes, n), append(l.address, netip.MustParseAddr(ip)), append(l.dirs, t.TempDir())
		l.addPod(i, bits)
		l.create(i)
	}
	return l
}

func (l *lab) forward(p *place) {
	l.Helper()
	if err := p.in(func() error {
		return Machine{}.Sysctl(l.text("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"), "1")
	}); err != nil {
		l.Skipf("this machine's namespaces cannot forward: %v", err)
	}
}

// addPod does the work of the CNI plugins.
func (l *lab) addPod(i int, bits string) {
	n, pod := l.nodes[i], newPlace(l.T)
	gateway := l.cidr(i).Addr().Next()
	pod.wire("eth0", n, "veth0")
	n.ip("addr add " + gateway.String() + l.text("/32", "/128 nodad") + " dev veth0")
	n.ip("route add " + gateway.Next().String() + " dev veth0")
	l.podIP = append(l.podIP, gateway.Next())
	pod.ip("addr add " + gateway.Next().String() + bits + " dev eth0")
	pod.ip("route add default via " + gateway.String())
	pod.serve()
	l.pods = append(l.pods, pod)
}

func (l *lab) create(i int) {
	l.Helper()
	_, err := client.For[*corev1.Node](l.api).Create(l.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: l.names[i]},
		Spec:       corev1.NodeSpec{PodCIDR: l.cidr(i).String(), PodCIDRs: []string{l.cidr(i).String()}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: l.address[i].String()}}},
	})
	if err != nil {
		l.Fatal(err)
	}
}

// reconcile runs a pod network on each node once and ends it as a crash would: only the
// kernel's state remains.
func (l *lab) reconcile(tunnel bool) {
	l.Helper()
	l.reports = nil
	for i := range l.nodes {
		set := netrules.NewSet()
		n := New(Config{
			Node: l.names[i], Client: l.api, Log: slog.New(slog.NewTextHandler(writer{l}, &slog.HandlerOptions{Level: slog.LevelError})),
			Host: Machine{}, ConfDir: l.dirs[i], Tunnel: tunnel,
			ClusterCIDR: netip.MustParsePrefix(l.text("10.244.0.0/16", "fd00:10:244::/48")),
			SetRules:    func(f netrules.Fragment) { set.Put("pods", f) },
		})
		ctx, cancel := context.WithCancel(l.Context())
		go n.nodes.Run(ctx)
		if err := n.nodes.WaitSynced(ctx); err != nil {
			l.Fatal(err)
		}
		if err := l.nodes[i].in(n.reconcile); err != nil {
			l.Fatalf("node %s: %v", l.names[i], err)
		}
		cancel()
		l.applyRules(i, set)
	}
}

type writer struct{ *lab }

func (w writer) Write(line []byte) (int, error) {
	w.reports = append(w.reports, string(line))
	return len(line), nil
}

func (l *lab) applyRules(i int, set *netrules.Set) {
	l.Helper()
	tool := l.text("iptables", "ip6tables")
	l.nodes[i].run(string(set.Full(nil).Render()), tool+"-restore", "--noflush")
	for _, h := range Hooks() {
		hook := append([]string{"-t", h.Table, "-C", h.Chain}, h.Words()...)
		if l.nodes[i].in(exec.Command(tool, hook...).Run) != nil {
			hook[2] = "-A"
			l.nodes[i].run("", tool, hook...)
		}
	}
}

// reached checks the connections between all pairs of the nodes in among.
func (l *lab) reached(mtu int, among ...int) {
	l.Helper()
	for _, i := range among {
		for _, j := range among {
			if i == j {
				continue
			}
			if got, err := l.pods[i].seenAs(l.podIP[j]); err != nil || got != l.podIP[i].String() {
				l.Errorf("from pod %s to pod %s: seen as %q, not %s: %v", l.names[i], l.names[j], got, l.podIP[i], err)
			}
			if _, err := l.nodes[i].seenAs(l.podIP[j]); err != nil {
				l.Errorf("from node %s to pod %s: %v", l.names[i], l.names[j], err)
			}
			if err := l.pods[i].carries(l.podIP[j], mtu); err != nil {
				l.Errorf("a packet of %d bytes from pod %s to pod %s: %v", mtu, l.names[i], l.names[j], err)
			}
		}
		if got, err := l.pods[i].seenAs(l.outside); err != nil || got != l.address[i].String() {
			l.Errorf("from pod %s to the world: seen as %q, not as its node %s: %v", l.names[i], got, l.address[i], err)
		}
	}
}

// state returns the pod network's state in the kernel of a node.
func (l *lab) state(i int) string {
	l.Helper()
	var out []string
	err := l.nodes[i].in(func() error {
		routes, err := Machine{}.Routes()
		for _, r := range routes {
			out = append(out, fmt.Sprint(r))
		}
		if _, missing := netlink.LinkByName(tunnelName); missing == nil {
			entries, e := Machine{}.Entries()
			for _, entry := range entries {
				out = append(out, fmt.Sprint(entry))
			}
			err = errors.Join(err, e)
		}
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func TestPodsOfThreeNodes(t *testing.T) {
	for _, six := range []bool{false, true} {
		name, tunnelMTU := "IPv4", 1450
		if six {
			name, tunnelMTU = "IPv6", 1430
		}
		t.Run(name, func(t *testing.T) {
			l := newLab(t, six)

			l.reconcile(false)
			l.reached(1500, 0, 1)
			if !strings.Contains(strings.Join(l.reports, ""), "does not share a link") {
				t.Errorf("nobody says that c is beyond a router: %v", l.reports)
			}
			if got, err := l.pods[0].seenAs(l.podIP[2]); err == nil {
				t.Errorf("by routes the pod beyond the router was reached, as %s: how?", got)
			}

			l.reconcile(true)
			l.reached(tunnelMTU, 0, 1, 2)
			if len(l.reports) > 0 {
				t.Errorf("all is well, yet: %v", l.reports)
			}
			conf, err := os.ReadFile(filepath.Join(l.dirs[0], confFile))
			if want := fmt.Sprintf(`"mtu": %d`, tunnelMTU); err != nil || !strings.Contains(string(conf), want) {
				t.Errorf("no %s in %s, %v", want, conf, err)
			}
			before := l.state(0)
			l.reconcile(true) // after a restart nothing changes
			if after := l.state(0); after != before {
				t.Errorf("a restart changed\n%s\nto\n%s", before, after)
			}

			l.move(2, l.text("198.51.100.9", "2001:db8:2::9"))
			l.reconcile(true)
			l.reached(tunnelMTU, 0, 1, 2)

			l.nodes[0].ip("link delete " + tunnelName) // another program removed it
			l.reconcile(true)
			l.reached(tunnelMTU, 0, 1, 2)

			if err := client.For[*corev1.Node](l.api).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			l.nodes, l.names = slices.Delete(l.nodes, 1, 2), slices.Delete(l.names, 1, 2)
			l.dirs = slices.Delete(l.dirs, 1, 2)
			l.reconcile(true)
			if got := l.state(0); strings.Contains(got, l.cidr(1).String()) || strings.Contains(got, l.cidr(1).Addr().String()) {
				t.Errorf("the node that went is still known:\n%s", got)
			}

			for i := range l.nodes {
				if err := l.nodes[i].in(func() error { return Cleanup(l.dirs[i], l.dirs[i], "podium0") }); err != nil {
					t.Error(err)
				}
				if got := l.state(i); got != "" {
					t.Errorf("left behind:\n%s", got)
				}
				if l.nodes[i].in(func() error { _, err := netlink.LinkByName(tunnelName); return err }) == nil {
					t.Error("the tunnel is left behind")
				}
			}
		})
	}
}

// move gives a node another address.
func (l *lab) move(i int, ip string) {
	l.Helper()
	bits := l.text("/24", "/64")
	l.nodes[i].ip("addr del " + l.address[i].String() + bits + " dev eth0")
	l.nodes[i].ip("addr add " + ip + bits + l.text("", " nodad") + " dev eth0")
	if !l.six { // IPv4 routes are removed with the address
		l.nodes[i].ip("route replace default via 198.51.100.254")
	}
	l.address[i] = netip.MustParseAddr(ip)
	nodes := client.For[*corev1.Node](l.api)
	n, err := nodes.Get(l.Context(), l.names[i])
	if err == nil {
		n.Status.Addresses[0].Address = ip
		_, err = nodes.UpdateStatus(l.Context(), n)
	}
	if err != nil {
		l.Fatal(err)
	}
}
