package podnetwork

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podium/test/netns"
)

// TestMachine uses the real kernel in its own network namespace.
func TestMachine(t *testing.T) {
	if !netns.Inside(t) {
		return
	}
	run := func(words ...string) {
		t.Helper()
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", words, err, out)
		}
	}
	run("ip", "link", "add", "eth0", "mtu", "1400", "type", "veth", "peer", "name", "other")
	run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	run("ip", "link", "set", "eth0", "up")
	run("ip", "link", "set", "other", "up")
	run("ip", "link", "set", "lo", "up")
	run("ip", "route", "add", "default", "via", "192.0.2.254")
	run("ip", "link", "add", "podium0", "type", "bridge")

	var m Machine
	for name, tc := range map[string]struct {
		addr   string
		direct bool
	}{"Self": {"192.0.2.1", true}, "Neighbour": {"192.0.2.2", true}, "BeyondRouter": {"198.51.100.1", false}} {
		link, err := m.OnLink(netip.MustParseAddr(tc.addr))
		if err != nil || link.Direct != tc.direct || link.MTU != 1400 || link.Name != "eth0" {
			t.Errorf("%s: %+v %v", name, link, err)
		}
	}

	r := Route{Pods: netip.MustParsePrefix("10.244.1.0/24"), Via: netip.MustParseAddr("192.0.2.2")}
	moved := Route{Pods: r.Pods, Via: netip.MustParseAddr("192.0.2.3")}
	own := Route{Pods: netip.MustParsePrefix("10.244.0.0/24")}
	for _, add := range []Route{own, r, r, own, moved} {
		if err := m.AddRoute(add); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := m.Routes(); err != nil || len(got) != 2 || !slices.Contains(got, moved) || !slices.Contains(got, own) {
		t.Errorf("routes: %v %v, want %v and %v", got, err, own, moved)
	}
	if _, err := net.Dial("udp", "10.244.0.9:7"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("an address of this node that no pod has: %v, want it unreachable", err)
	}
	if err := m.RemoveRoute(own); err != nil {
		t.Error(err)
	}

	changed, err := m.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := func(within time.Duration) bool {
		select {
		case <-changed:
			return true
		case <-time.After(within):
			return false
		}
	}
	run("ip", "link", "add", "pod", "type", "veth", "peer", "name", "pod1")
	run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.9")
	if told(100 * time.Millisecond) {
		t.Error("a pod's link and somebody's route are none of ours")
	}
	accept, deadline := []byte(nil), time.Now().Add(5*time.Second)
	for string(accept) != "0\n" && time.Now().Before(deadline) {
		if accept, err = os.ReadFile("/proc/sys/net/ipv6/conf/pod/accept_dad"); err != nil {
			t.Fatal(err)
		}
	}
	if string(accept) != "0\n" {
		t.Error("a pod's link waits for duplicate address detection on the node's end")
	}
	run("ip", "route", "del", r.Pods.String())
	if !told(5 * time.Second) {
		t.Error("nobody says that our route was taken away")
	}
	run("ip", "link", "set", "podium0", "up")
	if !told(5 * time.Second) {
		t.Error("nobody says that a link has changed")
	}
	if err := m.AddRoute(moved); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	path := filepath.Join(dir, "cni", confFile)
	for i, want := range []bool{true, false} {
		if changed, err := m.WriteFile(path, []byte("{}")); changed != want || err != nil {
			t.Errorf("write %d: changed %v, %v", i, changed, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "cni", ".podium-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for range 2 { // the second call must not fail
		if err := Cleanup(filepath.Join(dir, "cni"), filepath.Join(dir, "addresses"), "podium0"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := m.Routes(); err != nil || len(got) != 0 {
		t.Errorf("after cleanup: %v %v", got, err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error("the CNI configuration is still there")
	}
	if exec.Command("ip", "link", "show", "podium0").Run() == nil {
		t.Error("the bridge is still there")
	}
}
