package iptables_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"podium/pkg/netrules"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
	"podium/test/netns"
)

func must(t testing.TB, words ...string) string {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// lab creates network namespaces for a node, two pods and a machine outside. The pods
// are 10.244.0.2 and .3, the machine is 192.0.2.20; the node routes between them and
// has the address 192.0.2.10 outside.
func lab(t *testing.T) {
	must(t, "mount", "--make-rprivate", "/")
	must(t, "mkdir", "-p", "/run/netns")
	must(t, "mount", "-t", "tmpfs", "tmpfs", "/run/netns")
	must(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	for i, pod := range []string{"pod2", "pod3"} {
		ip := fmt.Sprintf("10.244.0.%d", i+2)
		must(t, "ip", "netns", "add", pod)
		must(t, "ip", "link", "add", "v"+pod, "type", "veth", "peer", "name", "eth0", "netns", pod)
		must(t, "ip", "addr", "add", "10.244.0.1/32", "dev", "v"+pod)
		must(t, "ip", "link", "set", "v"+pod, "up")
		must(t, "ip", "route", "add", ip+"/32", "dev", "v"+pod)
		must(t, "ip", "-n", pod, "addr", "add", ip+"/32", "dev", "eth0")
		must(t, "ip", "-n", pod, "link", "set", "eth0", "up")
		must(t, "ip", "-n", pod, "link", "set", "lo", "up")
		must(t, "ip", "-n", pod, "route", "add", "10.244.0.1/32", "dev", "eth0")
		must(t, "ip", "-n", pod, "route", "add", "default", "via", "10.244.0.1")
		serve(t, pod)
	}
	must(t, "ip", "netns", "add", "outside")
	must(t, "ip", "link", "add", "out0", "type", "veth", "peer", "name", "eth0", "netns", "outside")
	must(t, "ip", "addr", "add", "192.0.2.10/24", "dev", "out0")
	must(t, "ip", "link", "set", "out0", "up")
	must(t, "ip", "route", "add", "default", "via", "192.0.2.20")
	must(t, "ip", "-n", "outside", "addr", "add", "192.0.2.20/24", "dev", "eth0")
	must(t, "ip", "-n", "outside", "link", "set", "eth0", "up")
	must(t, "ip", "-n", "outside", "route", "add", "203.0.113.9/32", "via", "192.0.2.10")
}

// serve starts an HTTP server in a pod that returns its name and the client's address.
func serve(t *testing.T, pod string) {
	cmd := exec.Command("ip", "netns", "exec", pod, os.Args[0], "-test.run=^TestHelperServer$")
	cmd.Env = append(os.Environ(), "PODIUM_TEST_SERVER="+pod)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// TestHelperServer is not a test: it runs as the process in a pod.
func TestHelperServer(t *testing.T) {
	pod := os.Getenv("PODIUM_TEST_SERVER")
	if pod == "" {
		t.Skip("only run by other tests")
	}
	t.Fatal(http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = io.WriteString(w, pod+" "+host)
	})))
}

// get sends a request from the node or from a pod.
func get(t *testing.T, from, url string) (string, error) {
	words := []string{os.Args[0], "-test.run=^TestHelperGet$"}
	if from != "" {
		words = append([]string{"ip", "netns", "exec", from}, words...)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "PODIUM_TEST_GET="+url)
	out, err := cmd.Output()
	answer, _, _ := strings.Cut(string(out), "\n")
	if err != nil {
		return "", fmt.Errorf("%s", answer)
	}
	return answer, nil
}

// TestHelperGet is not a test: it sends one request as a separate process.
func TestHelperGet(t *testing.T) {
	url := os.Getenv("PODIUM_TEST_GET")
	if url == "" {
		t.Skip("only run by other tests")
	}
	resp, err := (&http.Client{Timeout: 3 * time.Second}).Get(url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	os.Exit(0)
}

func endpoint(ip string) services.Endpoint {
	return services.Endpoint{Addr: netip.AddrPortFrom(netip.MustParseAddr(ip), 8080)}
}

func TestTrafficOnThisKernel(t *testing.T) {
	if !netns.Inside(t, "iptables", "iptables-restore") {
		return
	}
	lab(t)
	ctx := context.Background()
	host, err := iptables.NewHost(services.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	features, err := host.Features(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the kernel has %+v", features)
	planner := &iptables.Planner{PodTraffic: "-s 10.244.0.0/16", NotPodTraffic: "! -s 10.244.0.0/16", LocalhostNodePorts: true, Kernel: features}
	must(t, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")
	set := netrules.NewSet()
	first, last := planner.Base()
	set.Put(iptables.First, first)
	set.Put(iptables.Last, last)
	web := services.Port{
		Namespace: "default", Service: "web", Protocol: "tcp", Port: 80, NodePort: 30080, Any: true,
		ClusterIP: netip.MustParseAddr("10.96.0.7"), ExternalIPs: []netip.Addr{netip.MustParseAddr("203.0.113.9")},
		Cluster: []services.Endpoint{endpoint("10.244.0.2"), endpoint("10.244.0.3")},
	}
	none := services.Port{Namespace: "default", Service: "none", Protocol: "tcp", Port: 80, NodePort: 30081, ClusterIP: netip.MustParseAddr("10.96.0.8")}
	set.Put("default/web", planner.Service([]services.Port{web}))
	set.Put("default/none", planner.Service([]services.Port{none}))
	applier := iptables.NewApplier(host, planner.Hooks())
	sync := func() {
		t.Helper()
		if _, err := applier.Sync(ctx, set, false); err != nil {
			t.Fatal(err)
		}
	}
	sync()

	// eventually sends requests until it has received every wanted response.
	eventually := func(from, url string, wants ...string) {
		t.Helper()
		seen := map[string]bool{}
		for range 60 {
			answer, err := get(t, from, url)
			if err != nil {
				t.Fatalf("%s from %q: %v", url, from, err)
			}
			pod, _, _ := strings.Cut(answer, " ")
			seen[pod], seen[answer] = true, true
			missing := false
			for _, w := range wants {
				missing = missing || !seen[w]
			}
			if !missing {
				return
			}
		}
		t.Errorf("%s from %q: got %v, want %v", url, from, seen, wants)
	}
	refused := func(from, url string) {
		t.Helper()
		if answer, err := get(t, from, url); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s from %q: got %q, %v; want refused", url, from, answer, err)
		}
	}
	eventually("", "http://10.96.0.7", "pod2", "pod3")
	eventually("", "http://192.0.2.10:30080", "pod2", "pod3")
	eventually("", "http://127.0.0.1:30080", "pod2", "pod3")
	eventually("", "http://203.0.113.9", "pod2", "pod3")
	eventually("pod2", "http://10.96.0.7", "pod3 10.244.0.2", "pod2 10.244.0.1") // a pod that meets itself sees the node
	eventually("pod2", "http://192.0.2.10:30080", "pod3 10.244.0.1")
	eventually("outside", "http://192.0.2.10:30080", "pod2 10.244.0.1", "pod3 10.244.0.1")
	eventually("outside", "http://203.0.113.9", "pod2", "pod3")
	refused("outside", "http://192.0.2.10:30081")
	refused("", "http://10.96.0.8")
	refused("pod2", "http://10.96.0.8")
	refused("", "http://192.0.2.10:30081")

	// After the removal of an endpoint it gets no more connections.
	web.Cluster = web.Cluster[1:]
	set.Put("default/web", planner.Service([]services.Port{web}))
	sync()
	for range 10 {
		if answer, err := get(t, "", "http://10.96.0.7"); err != nil || !strings.HasPrefix(answer, "pod3") {
			t.Fatalf("pod2 was taken out, got %q %v", answer, err)
		}
	}

	// With policy Local the endpoint sees the address of the client outside.
	web.ExternalLocal, web.Local = true, web.Cluster
	set.Put("default/web", planner.Service([]services.Port{web}))
	sync()
	if answer, err := get(t, "outside", "http://192.0.2.10:30080"); answer != "pod3 192.0.2.20" {
		t.Errorf("policy Local from outside: got %q, %v", answer, err)
	}

	if features.Recent {
		web.Cluster = []services.Endpoint{endpoint("10.244.0.2"), endpoint("10.244.0.3")}
		web.Affinity = time.Hour
		set.Put("default/web", planner.Service([]services.Port{web}))
		sync()
		first, err := get(t, "", "http://10.96.0.7")
		for range 15 {
			if answer, err2 := get(t, "", "http://10.96.0.7"); answer != first || err != nil || err2 != nil {
				t.Fatalf("affinity: %q then %q (%v, %v)", first, answer, err, err2)
			}
		}
	}

	// Another program flushes all rules; the applier detects and repairs that.
	must(t, "iptables", "-t", "nat", "-F")
	must(t, "iptables", "-F")
	if touched, known := applier.Foreign(); known && !touched {
		t.Error("the flush went unseen")
	}
	if _, _, err := applier.Repair(ctx, set); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, "", "http://10.96.0.7"); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	if touched, known := applier.Foreign(); known && touched {
		t.Error("our own repair looks foreign")
	}
	if batch, hooks, err := applier.Repair(ctx, set); err != nil || !batch.Empty() || hooks != 0 {
		t.Errorf("a second repair found %v, %d hooks, %v", batch, hooks, err)
	}

	// A new process takes over while there is traffic.
	applier = iptables.NewApplier(host, planner.Hooks())
	sync()
	eventually("", "http://10.96.0.7")

	if err := iptables.Cleanup(ctx, host, planner.Hooks()); err != nil {
		t.Fatal(err)
	}
	if err := iptables.Cleanup(ctx, host, planner.Hooks()); err != nil {
		t.Fatalf("twice is fine: %v", err)
	}
	for _, table := range netrules.Tables() {
		if left := must(t, "iptables-save", "-t", table); strings.Contains(left, "KUBE-") {
			t.Errorf("left in %s:\n%s", table, left)
		}
	}
}

func TestScaleOnThisKernel(t *testing.T) {
	if !netns.Inside(t, "iptables", "iptables-restore") {
		return
	}
	ctx := context.Background()
	host, err := iptables.NewHost(services.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	n := 1000
	if testing.Short() {
		n = 200
	}
	planner, set := big(n)
	applier := iptables.NewApplier(host, planner.Hooks())
	timed := func(what string, f func()) {
		t.Helper()
		began := time.Now()
		f()
		t.Logf("%d services: %s took %s", n, what, time.Since(began).Round(time.Millisecond/10))
	}
	sync := func() {
		t.Helper()
		if _, err := applier.Sync(ctx, set, false); err != nil {
			t.Fatal(err)
		}
	}
	timed("writing everything", sync)
	timed("one endpoint change", func() {
		set.Put("ns/s77", planner.Service(bigService(77, 1)))
		sync()
	})
	timed("a new service", func() {
		set.Put("ns/new", planner.Service([]services.Port{{Namespace: "ns", Service: "new", Protocol: "tcp", Port: 80,
			ClusterIP: netip.MustParseAddr("10.96.0.250"), Any: true, Cluster: []services.Endpoint{endpoint("10.244.9.9")}}}))
		sync()
	})
	timed("comparing", func() {
		if batch, hooks, err := applier.Repair(ctx, set); err != nil || !batch.Empty() || hooks != 0 {
			t.Errorf("nothing was changed, yet: %d chains, %d to remove, %d hooks, %v", len(batch.Write), len(batch.Delete), hooks, err)
		}
	})
	timed("cleaning up", func() {
		if err := iptables.Cleanup(ctx, host, planner.Hooks()); err != nil {
			t.Fatal(err)
		}
	})
}

// The same for IPv6 with ip6tables, in short.
func TestIPv6TrafficOnThisKernel(t *testing.T) {
	if !netns.Inside(t, "iptables", "iptables-restore", "ip6tables") {
		return
	}
	must(t, "mount", "--make-rprivate", "/")
	must(t, "mkdir", "-p", "/run/netns")
	must(t, "mount", "-t", "tmpfs", "tmpfs", "/run/netns")
	must(t, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	must(t, "ip", "netns", "add", "pod2")
	must(t, "ip", "link", "add", "vpod2", "type", "veth", "peer", "name", "eth0", "netns", "pod2")
	must(t, "ip", "addr", "add", "fd00:244::1/64", "dev", "vpod2", "nodad")
	must(t, "ip", "link", "set", "vpod2", "up")
	must(t, "ip", "-n", "pod2", "addr", "add", "fd00:244::2/64", "dev", "eth0", "nodad")
	must(t, "ip", "-n", "pod2", "link", "set", "eth0", "up")
	must(t, "ip", "-n", "pod2", "link", "set", "lo", "up")
	must(t, "ip", "-n", "pod2", "route", "add", "default", "via", "fd00:244::1")
	must(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "nowhere")
	must(t, "ip", "addr", "add", "2001:db8::10/64", "dev", "up0", "nodad")
	must(t, "ip", "link", "set", "up0", "up")
	must(t, "ip", "link", "set", "nowhere", "up")
	must(t, "ip", "route", "add", "default", "via", "2001:db8::1")
	serve(t, "pod2")

	ctx := context.Background()
	host, err := iptables.NewHost(services.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	features, err := host.Features(ctx)
	if err != nil {
		t.Fatal(err)
	}
	planner := &iptables.Planner{Family: services.IPv6, PodTraffic: "-s fd00:244::/48", NotPodTraffic: "! -s fd00:244::/48", Kernel: features}
	set := netrules.NewSet()
	first, last := planner.Base()
	set.Put(iptables.First, first)
	set.Put(iptables.Last, last)
	set.Put("default/web", planner.Service([]services.Port{{
		Namespace: "default", Service: "web", Protocol: "tcp", Port: 80, NodePort: 30080, Any: true, Affinity: time.Hour,
		ClusterIP: netip.MustParseAddr("fd00:96::7"), Cluster: []services.Endpoint{endpoint("fd00:244::2")},
	}}))
	set.Put("default/none", planner.Service([]services.Port{{Namespace: "default", Service: "none", Protocol: "tcp", Port: 80, ClusterIP: netip.MustParseAddr("fd00:96::8")}}))
	applier := iptables.NewApplier(host, planner.Hooks())
	for range 2 { // the second call writes nothing
		if _, err := applier.Sync(ctx, set, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range []struct{ from, url, want string }{
		{"", "http://[fd00:96::7]", "pod2 fd00:244::1"},
		{"", "http://[2001:db8::10]:30080", "pod2 fd00:244::1"},
		{"pod2", "http://[fd00:96::7]", "pod2 fd00:244::1"},
	} {
		if got, err := get(t, way.from, way.url); err != nil || got != way.want {
			t.Errorf("%s from %q: %q, %v; want %q", way.url, way.from, got, err, way.want)
		}
	}
	if got, err := get(t, "", "http://[fd00:96::8]"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a Service without endpoints: %q, %v; want refused", got, err)
	}
	if batch, hooks, err := applier.Repair(ctx, set); err != nil || !batch.Empty() || hooks != 0 {
		t.Errorf("nothing was changed, yet: %v, %d hooks, %v", batch, hooks, err)
	}
	if err := iptables.Cleanup(ctx, host, planner.Hooks()); err != nil {
		t.Fatal(err)
	}
	if left := must(t, "ip6tables-save"); strings.Contains(left, "KUBE-") {
		t.Errorf("left:\n%s", left)
	}
}
