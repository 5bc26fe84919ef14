package memorymanager

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/hardware/drawn"
	"podium/pkg/kubelet/topology"
)

const gi = 1 << 30

// config is a machine with 4 nodes of 8 GiB, 1 GiB of which is in huge pages; 1 GiB of
// node 0 is reserved.
func config(dir string) Config {
	machine := drawn.Drawing{Sockets: 2, Nodes: 4, Cores: 4, Threads: 1, Memory: 8 * gi}.Machine()
	for _, n := range machine.Nodes {
		n.HugePages[2<<20] = gi
	}
	one := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	return Config{Machine: machine, Reserved: []Reservation{{Node: 0, Limits: one}}, Expected: one, Dir: dir, Log: slog.New(slog.DiscardHandler)}
}

func newTest(t testing.TB, dir string) *Manager {
	t.Helper()
	m, err := New(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pod returns a Guaranteed pod; each word is an app container with that many GiB, an init
// container as init:2, or a sidecar as sidecar:1. A word with + has that many huge
// pages of 2 MiB, too.
func pod(uid, words string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}}
	for i, word := range strings.Fields(words) {
		kind, size, named := strings.Cut(word, ":")
		if !named {
			size = kind
		}
		size, pages, huge := strings.Cut(size, "+")
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse(size + "Gi")}
		if huge {
			q := resource.MustParse("2Mi")
			var n int64
			fmt.Sscan(pages, &n)
			q.Mul(n)
			list["hugepages-2Mi"] = q
		}
		c := corev1.Container{Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
		if kind == "sidecar" {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		if named {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

func admit(m *Manager, p *corev1.Pod, policy, scope string) error {
	machine := config("").Machine
	t, err := topology.New(topology.Config{Policy: policy, Scope: scope, Machine: machine, Providers: []topology.Provider{m}})
	if err != nil {
		return err
	}
	if r := t.Admit(p); r != nil {
		return fmt.Errorf("%s: %s", r.Reason, r.Message)
	}
	return nil
}

func TestAllocate(t *testing.T) {
	for name, c := range map[string]struct {
		policy, scope string
		pods          []string
		want          map[string][]int // nodes of the last pod's containers
		err           string
	}{
		"one node":           {policy: topology.None, pods: []string{"2"}, want: map[string][]int{"c0": {0}}},
		"the next node":      {policy: topology.None, pods: []string{"2", "5"}, want: map[string][]int{"c0": {1}}},
		"two nodes":          {policy: topology.Restricted, pods: []string{"10"}, want: map[string][]int{"c0": {0, 1}}},
		"a used node":        {policy: topology.Restricted, pods: []string{"2", "10"}, want: map[string][]int{"c0": {1, 2}}},
		"same group":         {policy: topology.None, pods: []string{"7", "10", "8"}, err: "no NUMA nodes with enough memory"},
		"single node":        {policy: topology.SingleNode, pods: []string{"10"}, err: "TopologyAffinityError"},
		"huge pages":         {policy: topology.None, pods: []string{"1+300", "1+300"}, want: map[string][]int{"c0": {1}}},
		"too many pages":     {policy: topology.None, pods: []string{"1+3000"}, err: "UnexpectedAdmissionError: Allocate failed due to failed to get the default NUMA affinity"},
		"pod scope":          {policy: topology.Restricted, scope: topology.ScopePod, pods: []string{"1", "4 3"}, want: map[string][]int{"c0": {1}, "c1": {1}}},
		"init is reused":     {policy: topology.None, pods: []string{"init:6 3 3"}, want: map[string][]int{"c0": {0}, "c1": {0}, "c2": {0}}},
		"sidecars keep":      {policy: topology.None, pods: []string{"sidecar:3 init:3 3"}, want: map[string][]int{"c0": {0}, "c1": {0}, "c2": {0}}},
		"no room on reuse":   {policy: topology.None, pods: []string{"init:6 7"}, err: "no NUMA nodes with enough memory"},
		"more than there is": {policy: topology.BestEffort, pods: []string{"40"}, err: "no NUMA nodes with enough memory"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTest(t, t.TempDir())
			var last *corev1.Pod
			var err error
			for i, words := range c.pods {
				last = pod(fmt.Sprint("pod", i), words)
				err = admit(m, last, c.policy, c.scope)
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]int{}
			for name := range m.assigned[string(last.UID)] {
				got[name] = m.Nodes(last.UID, name).Nodes()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReservationsAreChecked(t *testing.T) {
	list := func(text string) corev1.ResourceList {
		r, err := ParseReservation("0:" + text)
		if err != nil {
			t.Fatal(err)
		}
		return r.Limits
	}
	for want, change := range map[string]func(*Config){
		`the total amount 0 of type "memory" is not equal to the value 1073741824`: func(c *Config) { c.Reserved = nil },
		`of type "hugepages-2Mi" is not equal to the value 0`:                      func(c *Config) { c.Reserved[0].Limits = list("memory=1Gi,hugepages-2Mi=2Mi") },
		"the machine has no NUMA node 9":                                           func(c *Config) { c.Reserved[0].Node = 9 },
		"NUMA node 0 appears twice":                                                func(c *Config) { c.Reserved = append(c.Reserved, c.Reserved[0]) },
		"cpu=1: want memory or huge pages":                                         func(c *Config) { c.Reserved[0].Limits = list("memory=1Gi,cpu=1") },
	} {
		c := config(t.TempDir())
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestPodsComeAndGo admits and removes random pods and restarts the manager at random.
// After each step no group has given more than it has, groups do not overlap, and no
// pod has more than it requests.
func TestPodsComeAndGo(t *testing.T) {
	kinds := []string{"%d", "%d+400", "%d %d", "init:%d %d", "sidecar:%d %d", "init:%d sidecar:%d init:%d %d %d"}
	policies := []string{topology.None, topology.BestEffort, topology.Restricted, topology.SingleNode}
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, 3))
		dir, there := t.TempDir(), map[string]*corev1.Pod{}
		m := newTest(t, dir)
		for i := range 50 {
			switch r.IntN(5) {
			case 0:
				for uid := range there {
					m.Release(types.UID(uid))
					delete(there, uid)
					break
				}
			case 1:
				before := m.assigned
				if m = newTest(t, dir); !cmp.Equal(before, m.assigned) {
					t.Fatal("a restart changes the memory:", cmp.Diff(before, m.assigned))
				}
			default:
				words := kinds[r.IntN(len(kinds))]
				for strings.Contains(words, "%d") {
					words = strings.Replace(words, "%d", fmt.Sprint(1+r.IntN(9)), 1)
				}
				p := pod(fmt.Sprint("pod", i), words)
				if admit(m, p, policies[r.IntN(4)], []string{topology.ScopeContainer, topology.ScopePod}[r.IntN(2)]) == nil {
					there[string(p.UID)] = p
				}
			}
			checkMemory(t, m, there)
		}
	}
}

func checkMemory(t *testing.T, m *Manager, there map[string]*corev1.Pod) {
	t.Helper()
	if err := m.checkGroups(m.assigned); err != nil {
		t.Fatal(err)
	}
	for uid, containers := range m.assigned {
		p, sums := there[uid], request{}
		if p == nil {
			t.Fatalf("pod %s is gone and has %v", uid, containers)
		}
		for _, blocks := range containers {
			for _, b := range blocks {
				sums[b.Type] += b.Size
			}
		}
		if want := wantedByPod(p); !cmp.Equal(want, sums) {
			t.Fatalf("pod %s has %v, requests %v", uid, sums, want)
		}
	}
}

func TestBlocks(t *testing.T) {
	m := newTest(t, t.TempDir())
	p := pod("a", "7+100") // node 0 has 6 GiB for containers
	if err := admit(m, p, topology.SingleNode, topology.ScopeContainer); err != nil {
		t.Fatal(err)
	}
	want := []Block{{"hugepages-2Mi", 200 << 20, []int{1}}, {"memory", 7 * gi, []int{1}}}
	got := m.Blocks(p.UID, "c0")
	slices.SortFunc(got, func(a, b Block) int { return strings.Compare(string(a.Resource), string(b.Resource)) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := m.Blocks("b", "c0"); got != nil {
		t.Errorf("a pod without memory has %v", got)
	}
	want = nil
	for node, memory := range []uint64{6 * gi, 7 * gi, 7 * gi, 7 * gi} {
		want = append(want, Block{"hugepages-2Mi", gi, []int{node}}, Block{"memory", memory, []int{node}})
	}
	if diff := cmp.Diff(want, m.Allocatable()); diff != "" {
		t.Error(diff)
	}
}
