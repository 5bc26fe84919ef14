package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/netrules"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
)

func random(r *rand.Rand, i int) []services.Port {
	p := services.Port{
		Namespace: "ns", Service: fmt.Sprintf("s%d", i), Name: "p", Protocol: []string{"tcp", "udp"}[r.IntN(2)],
		ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i % 3), byte(i)}), Port: 80,
		InternalLocal: r.IntN(4) == 0, ExternalLocal: r.IntN(3) == 0,
	}
	if r.IntN(2) == 0 {
		p.NodePort = 30000 + int32(i)
	}
	if r.IntN(5) == 0 {
		p.Affinity = time.Minute
	}
	if r.IntN(5) == 0 {
		p.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})}
	}
	for range r.IntN(4) {
		e := services.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(r.IntN(20))}), 8080), Local: r.IntN(2) == 0}
		if slices.ContainsFunc(p.Cluster, func(o services.Endpoint) bool { return o.Addr == e.Addr }) {
			continue
		}
		p.Any = true
		p.Cluster = append(p.Cluster, e)
		if e.Local {
			p.Local = append(p.Local, e)
		}
	}
	return []services.Port{p}
}

// For random changes, failures and interference, writing only the changes has the same
// result as writing everything.
func TestChangesEqualAFullRender(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 1))
		planner := &iptables.Planner{PodTraffic: "-s 10.244.0.0/16", NotPodTraffic: "! -s 10.244.0.0/16", Kernel: iptables.AllFeatures()}
		kernel := iptables.NewFake()
		applier, set := iptables.NewApplier(kernel, planner.Hooks()), netrules.NewSet()
		first, last := planner.Base()
		set.Put(iptables.First, first)
		set.Put(iptables.Last, last)
		want := map[int][]services.Port{}
		for step := range 40 {
			for range 1 + r.IntN(4) {
				i := r.IntN(12)
				if r.IntN(3) == 0 {
					delete(want, i)
					set.Remove(fmt.Sprint("ns/s", i))
					continue
				}
				want[i] = random(r, i)
				set.Put(fmt.Sprint("ns/s", i), planner.Service(want[i]))
			}
			failing := false
			switch r.IntN(8) {
			case 0: // this write fails; the next one must include its changes
				failing = true
				kernel.FailWith(func() error { return errors.New("the kernel is busy") })
			case 1: // a new process takes over
				applier = iptables.NewApplier(kernel, planner.Hooks())
			}
			_, err := applier.Sync(ctx, set, r.IntN(10) == 0)
			if failing {
				kernel.FailWith(nil)
				continue
			}
			if err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			if r.IntN(6) == 0 {
				kernel.Flush("nat", []string{"KUBE-SERVICES", "KUBE-MARK-MASQ", "PREROUTING"}[r.IntN(3)])
				if _, _, err := applier.Repair(ctx, set); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(fresh(t, planner, want), dump(kernel)); diff != "" {
				t.Fatalf("seed %d step %d (-full +changes):\n%s", seed, step, diff)
			}
		}
	}
}

func fresh(t *testing.T, planner *iptables.Planner, want map[int][]services.Port) string {
	set, kernel := netrules.NewSet(), iptables.NewFake()
	first, last := planner.Base()
	set.Put(iptables.First, first)
	set.Put(iptables.Last, last)
	for i, ports := range want {
		set.Put(fmt.Sprint("ns/s", i), planner.Service(ports))
	}
	apply(t, kernel, planner, set)
	return dump(kernel)
}

func dump(k *iptables.Fake) string { return k.Dump("nat") + k.Dump("filter") + k.Dump("raw") }

func TestRepairPutsBackWhatStrangersTookAndOnlyThat(t *testing.T) {
	ctx := context.Background()
	planner := &iptables.Planner{Kernel: iptables.AllFeatures()}
	kernel, set := iptables.NewFake(), netrules.NewSet()
	first, last := planner.Base()
	set.Put(iptables.First, first)
	set.Put(iptables.Last, last)
	set.Put("ns/s1", planner.Service(random(rand.New(rand.NewPCG(7, 7)), 1)))
	applier := iptables.NewApplier(kernel, planner.Hooks())
	if _, err := applier.Sync(ctx, set, true); err != nil {
		t.Fatal(err)
	}
	before := dump(kernel)
	if touched, known := applier.Foreign(); touched || !known {
		t.Errorf("after our own write: touched %v, known %v", touched, known)
	}
	kernel.Flush("nat", "KUBE-SERVICES")
	kernel.Flush("nat", "PREROUTING")
	if err := kernel.Restore(ctx, []byte("*nat\n:KUBE-SVC-STRANGE - [0:0]\n-A KUBE-SVC-STRANGE -j RETURN\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	if touched, _ := applier.Foreign(); !touched {
		t.Error("a flush went unseen")
	}
	batch, hooks, err := applier.Repair(ctx, set)
	if err != nil {
		t.Fatal(err)
	}
	if len(batch.Write) != 1 || len(batch.Delete) != 1 || hooks != 1 {
		t.Errorf("repaired %v, removed %v, %d hooks; want one of each", batch.Write, batch.Delete, hooks)
	}
	if diff := cmp.Diff(before, dump(kernel)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if touched, _ := applier.Foreign(); touched {
		t.Error("our own repair looks foreign")
	}
}

func TestAForeignRuleCannotBlockUs(t *testing.T) {
	ctx := context.Background()
	planner := &iptables.Planner{Kernel: iptables.AllFeatures()}
	kernel, set := iptables.NewFake(), netrules.NewSet()
	first, last := planner.Base()
	set.Put(iptables.First, first)
	set.Put(iptables.Last, last)
	port := random(rand.New(rand.NewPCG(7, 7)), 1)
	port[0].Cluster, port[0].InternalLocal = []services.Endpoint{{Addr: netip.MustParseAddrPort("10.244.0.1:80")}}, false
	set.Put("ns/s1", planner.Service(port))
	applier := iptables.NewApplier(kernel, planner.Hooks())
	if _, err := applier.Sync(ctx, set, true); err != nil {
		t.Fatal(err)
	}
	var svc string
	for line := range strings.Lines(kernel.Dump("nat")) {
		if strings.HasPrefix(line, ":KUBE-SVC-") {
			svc = strings.TrimSpace(line[1:])
		}
	}
	if err := kernel.Restore(ctx, []byte("*nat\n:STRANGER - [0:0]\n-A STRANGER -j "+svc+"\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	set.Remove("ns/s1")
	if _, err := applier.Sync(ctx, set, false); err != nil {
		t.Fatalf("the chain is in use by a stranger, so it should have been emptied: %v", err)
	}
	if _, err := applier.Sync(ctx, set, true); err != nil {
		t.Fatalf("and so again in full syncs: %v", err)
	}
	if n, err := kernel.Counts(ctx, "nat"); err != nil || n[svc] != 0 {
		t.Errorf("%s has %d rules (%v), want none", svc, n[svc], err)
	}
}

func TestCleanupLeavesNothing(t *testing.T) {
	ctx := context.Background()
	kernel := iptables.NewFake()
	empty := dump(kernel)
	planner := &iptables.Planner{LocalhostNodePorts: true, Kernel: iptables.AllFeatures()}
	set := netrules.NewSet()
	first, last := planner.Base()
	set.Put(iptables.First, first)
	set.Put(iptables.Last, last)
	for i := range 8 {
		set.Put(fmt.Sprint("ns/s", i), planner.Service(random(rand.New(rand.NewPCG(uint64(i), 7)), i)))
	}
	apply(t, kernel, planner, set)
	for range 2 { // the second call must not fail
		if err := iptables.Cleanup(ctx, kernel, planner.Hooks()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(empty, dump(kernel)); diff != "" {
		t.Errorf("(-empty +left):\n%s", diff)
	}
}

// big returns a cluster of n Services with three endpoints each.
func big(n int) (*iptables.Planner, *netrules.Set) {
	planner := &iptables.Planner{PodTraffic: "-s 10.244.0.0/16", NotPodTraffic: "! -s 10.244.0.0/16", LocalhostNodePorts: true, Kernel: iptables.AllFeatures()}
	set := netrules.NewSet()
	first, last := planner.Base()
	set.Put(iptables.First, first)
	set.Put(iptables.Last, last)
	for i := range n {
		set.Put(fmt.Sprint("ns/s", i), planner.Service(bigService(i, 0)))
	}
	return planner, set
}

func bigService(i, generation int) []services.Port {
	p := services.Port{
		Namespace: "ns", Service: fmt.Sprint("s", i), Name: "http", Protocol: "tcp", Port: 80,
		ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Any: true,
	}
	for e := range 3 {
		p.Cluster = append(p.Cluster, services.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(generation), byte(e)}), uint16(8080+i%1000))})
	}
	return []services.Port{p}
}

func BenchmarkFull(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n, " services"), func(b *testing.B) {
			for b.Loop() {
				_, set := big(n)
				b.SetBytes(int64(len(set.Full(nil).Render())))
			}
		})
	}
}

func BenchmarkOneEndpointChange(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n, " services"), func(b *testing.B) {
			planner, set := big(n)
			set.Commit(set.Full(nil))
			size, generation := 0, 0
			for b.Loop() {
				generation++
				set.Put("ns/s77", planner.Service(bigService(77, generation)))
				batch := set.Changes()
				size = len(batch.Render())
				set.Commit(batch)
			}
			b.ReportMetric(float64(size), "batch-bytes")
		})
	}
}
