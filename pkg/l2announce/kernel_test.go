package l2announce

import (
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"podium/test/netns"
)

// TestKernel uses two real interfaces and a neighbour that resolves the announced
// addresses, in network namespaces of the test.
func TestKernel(t *testing.T) {
	if !netns.Inside(t) {
		return
	}
	n := newNeighbour(t)
	t.Run("ARP", func(t *testing.T) { n.story(t, "10.9.0.240", "10.9.0.2") })
	t.Run("NDP", func(t *testing.T) { n.story(t, "2001:db8::f0", "2001:db8::2") })
	t.Run("Reach", func(t *testing.T) {
		var k Kernel
		for text, want := range map[string]Reach{"10.9.0.7": OnLink, "192.0.2.7": Anywhere, "2001:db8::7": OnLink, "2001:db9::7": Nowhere} {
			if got, err := k.Reach(netip.MustParseAddr(text)); got != want || err != nil {
				t.Errorf("%s: %v, %v, want %v", text, got, err, want)
			}
		}
		ip(t, "link", "set", "eth0", "down")
		if _, err := k.Reach(netip.MustParseAddr("10.9.0.7")); err == nil || !strings.Contains(err.Error(), "eth0 is down") {
			t.Errorf("a link that is down: %v", err)
		}
		ip(t, "link", "set", "eth0", "up")
	})
	t.Run("What is not ours", func(t *testing.T) {
		ip(t, "addr", "add", "10.9.0.99/32", "dev", "eth0", "valid_lft", "60", "preferred_lft", "60") // for example from DHCP
		ip(t, "addr", "add", "10.9.0.98/32", "dev", "eth0")
		for _, text := range []string{"10.9.0.99", "10.9.0.98", "10.9.0.97"} {
			if err := (Kernel{}).Drop(netip.MustParseAddr(text)); err != nil {
				t.Error(err)
			}
		}
		if err := Cleanup(); err != nil {
			t.Error(err)
		}
		if have := ip(t, "addr", "show", "dev", "eth0"); !strings.Contains(have, "10.9.0.99/32") || !strings.Contains(have, "10.9.0.98/32") {
			t.Errorf("somebody else's address is gone:\n%s", have)
		}
	})
}

// story follows the lifecycle of an address as a neighbour sees it. far is the
// neighbour's own address.
func (n neighbour) story(t *testing.T, address, far string) {
	var k Kernel
	a := netip.MustParseAddr(address)
	hold := func(d time.Duration) {
		t.Helper()
		if err := k.Hold(a, d); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.ask(t, address); strings.Contains(got, ours0) {
		t.Fatalf("answered before it is here: %s", got)
	}
	n.ip(t, "neigh", "flush", "to", address, "dev", "br0", "nud", "all")

	hold(3 * time.Second)
	held := time.Now()
	if got := n.ask(t, address); !strings.Contains(got, ours0) {
		t.Errorf("the neighbour asks who has it, and knows: %s", got)
	}
	if got, err := k.Held(); err != nil || !slices.Contains(got, a) {
		t.Errorf("held: %v %v", got, err)
	}
	if got := ip(t, "route", "get", far); strings.Contains(got, address) || !strings.Contains(got, " src ") {
		t.Errorf("this machine takes it for its own address: %s", got)
	}
	for { // no renewal follows
		got, err := k.Held()
		if err != nil || time.Since(held) > 10*time.Second {
			t.Fatalf("still held after %v: %v %v", time.Since(held), got, err)
		}
		if !slices.Contains(got, a) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("a lifetime of 3 s ended after %v", time.Since(held))
	if took := time.Since(held); took < 2*time.Second || took > 3*time.Second+1250*time.Millisecond {
		t.Errorf("a lifetime of 3 s ended after %v: slack does not cover it", took)
	}
	n.ip(t, "neigh", "flush", "to", address, "dev", "br0", "nud", "all")
	if got := n.ask(t, address); strings.Contains(got, ours0) {
		t.Errorf("its lifetime is over, and it is answered: %s", got)
	}

	n.ip(t, "neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "dev", "br0", "nud", "stale") // the previous node
	hold(2 * time.Second)
	hold(time.Minute) // renewed
	if err := k.Announce(a); err != nil {
		t.Error(err)
	}
	n.until(t, address, func(known string) bool { return strings.Contains(known, ours0) })
	if have := ip(t, "addr", "show", "dev", "eth0"); strings.Count(have, address+"/") != 1 {
		t.Errorf("it is there more than once:\n%s", have)
	}
	time.Sleep(3 * time.Second)
	if got, err := k.Held(); err != nil || !slices.Contains(got, a) {
		t.Errorf("renewed, and gone: %v %v", got, err)
	}
	for range 2 { // the second call must not fail
		if err := k.Drop(a); err != nil {
			t.Error(err)
		}
	}
	if got, err := k.Held(); err != nil || slices.Contains(got, a) {
		t.Errorf("dropped, and held: %v %v", got, err)
	}
	hold(time.Minute)
	if err := Cleanup(); err != nil {
		t.Error(err)
	}
	if got, err := k.Held(); err != nil || len(got) > 0 {
		t.Errorf("after the clean-up: %v %v", got, err)
	}
}

// ours0 is the hardware address of this machine.
const ours0 = "02:00:00:00:00:01"

// neighbour is another machine on the link of eth0. Its own process keeps its network
// namespace.
type neighbour struct{ pid string }

func newNeighbour(t *testing.T) neighbour {
	ip(t, "link", "set", "lo", "up")
	ip(t, "link", "add", "eth0", "address", ours0, "type", "veth", "peer", "name", "br0")
	keeper := exec.Command("sleep", "600")
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keeper.Process.Kill(); _ = keeper.Wait() })
	n := neighbour{pid: strconv.Itoa(keeper.Process.Pid)}
	ip(t, "link", "set", "br0", "netns", n.pid)
	n.ip(t, "addr", "add", "10.9.0.2/24", "dev", "br0")
	n.ip(t, "addr", "add", "2001:db8::2/64", "dev", "br0", "nodad")
	n.ip(t, "link", "set", "br0", "up")
	run(t, "nsenter", "-t", n.pid, "-n", "sh", "-c", // it gives up soon if there is no answer
		"for f in 4 6; do echo 200 > /proc/sys/net/ipv$f/neigh/br0/retrans_time_ms; done")
	ip(t, "addr", "add", "10.9.0.1/24", "dev", "eth0")
	ip(t, "addr", "add", "2001:db8::1/64", "dev", "eth0", "nodad")
	ip(t, "link", "set", "eth0", "up")
	ip(t, "route", "add", "default", "via", "10.9.0.2")
	return n
}

// ask makes the neighbour send a packet to an address, and returns its neighbour entry
// for the address.
func (n neighbour) ask(t *testing.T, address string) string {
	t.Helper()
	// Bash's own UDP needs no other program. A failure to send shows in the
	// neighbour's cache.
	_ = exec.Command("nsenter", "-t", n.pid, "-n", "bash", "-c", "echo > /dev/udp/"+address+"/9").Run()
	return n.until(t, address, func(known string) bool {
		return strings.Contains(known, "lladdr") || strings.Contains(known, "FAILED")
	})
}

// until waits until right returns true for the neighbour's entry of an address.
func (n neighbour) until(t *testing.T, address string, right func(string) bool) string {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		known := n.ip(t, "neigh", "show", "to", address, "dev", "br0")
		if right(known) {
			return known
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("the neighbour knows of %s: %q", address, known)
		}
	}
}

func ip(t *testing.T, words ...string) string {
	t.Helper()
	return run(t, append([]string{"ip"}, words...)...)
}

func (n neighbour) ip(t *testing.T, words ...string) string {
	t.Helper()
	return run(t, append([]string{"nsenter", "-t", n.pid, "-n", "ip"}, words...)...)
}

func run(t *testing.T, words ...string) string {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v %s", words, err, out)
	}
	return string(out)
}
