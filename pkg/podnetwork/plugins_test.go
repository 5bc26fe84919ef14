package podnetwork

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// cniRuntime does the network part of a container runtime: it runs the configured CNI
// plugins on a node.
type cniRuntime struct {
	*testing.T
	node    *place
	plugins string // folder
	config  []byte // of the first plugin
}

func newRuntime(t *testing.T, pods netip.Prefix) *cniRuntime {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	dir := PluginDir()
	if dir == "" {
		t.Skip("needs the CNI plugins (Debian's package: containernetworking-plugins)")
	}
	c := Config{Name: DefaultName, DataDir: t.TempDir()}
	list, err := c.conflist(pods, 1500)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct{ Plugins []map[string]any }
	if err := json.Unmarshal(list, &parsed); err != nil {
		t.Fatal(err)
	}
	first := parsed.Plugins[0]
	first["name"], first["cniVersion"] = c.Name, "0.4.0"
	config, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	r := &cniRuntime{T: t, node: newPlace(t), plugins: dir, config: config}
	for path, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
		"net/ipv6/conf/default/accept_dad": "0", // as Watch does for each pod's link
	} {
		if err := r.node.in(func() error { return Machine{}.Sysctl(path, value) }); err != nil {
			t.Skipf("this machine's namespaces cannot forward: %v", err)
		}
	}
	return r
}

func (r *cniRuntime) call(command, id string, pod *place) []byte {
	r.Helper()
	var out []byte
	err := r.node.in(func() error {
		cmd := exec.Command(filepath.Join(r.plugins, plugin(r.config)))
		cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + id, "CNI_IFNAME=eth0", "CNI_PATH=" + r.plugins,
			fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), int(pod.handle)), "PATH=" + os.Getenv("PATH")}
		cmd.Stdin = strings.NewReader(string(r.config))
		var err error
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		r.Fatalf("%s %s: %v: %s", command, id, err, out)
	}
	return out
}

func plugin(config []byte) string {
	var c struct{ Type string }
	_ = json.Unmarshal(config, &c) // it is our own configuration
	return c.Type
}

// add creates a pod that serves, and returns its address.
func (r *cniRuntime) add(id string) (*place, netip.Addr) {
	r.Helper()
	pod := newPlace(r.T)
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(r.call("ADD", id, pod), &result); err != nil || len(result.IPs) != 1 {
		r.Fatalf("add %s: %+v %v", id, result, err)
	}
	pod.serve()
	return pod, result.IPs[0].Address.Addr()
}

var podRanges = map[string]struct{ pods, gateway netip.Prefix }{
	"IPv4": {netip.MustParsePrefix("10.244.1.0/29"), netip.MustParsePrefix("10.244.1.1/29")},
	"IPv6": {netip.MustParsePrefix("fd00:10:244:1::/126"), netip.MustParsePrefix("fd00:10:244:1::1/126")},
}

// A pod with the address of a deleted pod is reachable at once from the node and from
// the other pods of the node, which had connections to the deleted pod.
func TestReusedAddresses(t *testing.T) {
	for name, tc := range podRanges {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, tc.pods)
			client, _ := r.add("client")
			used := map[netip.Addr]int{}
			for i := 0; ; i++ {
				pod, ip := r.add(fmt.Sprintf("pod-%d", i))
				for from, p := range map[string]*place{"the node": r.node, "another pod": client} {
					if _, err := p.seenAs(ip); err != nil {
						t.Errorf("pod %d from %s: %v (pods before it with its address %s: %d)", i, from, err, ip, used[ip])
					}
				}
				r.call("DEL", fmt.Sprintf("pod-%d", i), pod)
				if used[ip]++; used[ip] == 3 || t.Failed() {
					return
				}
			}
		})
	}
}

// Pods that an earlier version attached to a bridge and new pods reach each other. The
// bridge is removed with its last pod.
func TestRetireBridge(t *testing.T) {
	pods, gateway := podRanges["IPv4"].pods, podRanges["IPv4"].gateway
	r := newRuntime(t, pods)
	today := r.config
	r.config = []byte(strings.Replace(string(today), `"type":"ptp"`, `"type":"bridge","bridge":"podium0","isGateway":true`, 1))
	old, oldIP := r.add("old")
	r.config = today
	retire := func() {
		t.Helper()
		if err := r.node.in(func() error { return Machine{}.RetireBridge("podium0") }); err != nil {
			t.Fatal(err)
		}
	}
	there := func() bool {
		return r.node.in(func() error { _, err := netlink.LinkByName("podium0"); return err }) == nil
	}
	for range 2 { // the second call must not fail
		retire()
	}
	young, youngIP := r.add("young")
	for what, way := range map[string]struct {
		from *place
		to   netip.Addr
	}{"OldToYoung": {old, youngIP}, "YoungToOld": {young, oldIP}, "NodeToOld": {r.node, oldIP}, "NodeToYoung": {r.node, youngIP}, "OldToNode": {young, gateway.Addr()}} {
		if what == "OldToNode" {
			r.node.serve()
		}
		if _, err := way.from.seenAs(way.to); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.call("DEL", "old", old) // with the new configuration, as the runtime does
	if !there() {
		t.Fatal("the bridge went by itself")
	}
	retire()
	if there() {
		t.Error("the bridge is still there")
	}
	if _, err := r.node.seenAs(youngIP); err != nil {
		t.Error(errors.Join(errors.New("a pod of today needs the bridge"), err))
	}
}
