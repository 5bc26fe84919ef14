package cpumanager

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/hardware/drawn"
	"podium/pkg/kubelet/topology"
)

var (
	small   = drawn.Drawing{Sockets: 1, Nodes: 1, Cores: 4, Threads: 1}
	threads = drawn.Drawing{Sockets: 2, Nodes: 2, Cores: 8, Threads: 2}
	nodes   = drawn.Drawing{Sockets: 2, Nodes: 4, Cores: 16, Threads: 2}
	holes   = drawn.Drawing{Sockets: 2, Nodes: 2, Cores: 8, Threads: 2, Offline: []int{1, 8, 14}}
)

func config(dir string, d drawn.Drawing, o Options) Config {
	return Config{Options: o, Machine: d.Machine(), ReservedMilli: 500, Dir: dir, Log: slog.New(slog.DiscardHandler)}
}

func newTest(t *testing.T, d drawn.Drawing, o Options) *Manager {
	t.Helper()
	m, err := New(config(t.TempDir(), d, o))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pod returns a Guaranteed pod; each word is an app container with that many CPUs, an
// init container as init:2, or a sidecar as sidecar:1.
func pod(uid, words string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}}
	for i, word := range strings.Fields(words) {
		kind, cpu, named := strings.Cut(word, ":")
		if !named {
			cpu = kind
		}
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Mi")}
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

// admit allocates for all containers as the topology manager with the policy none
// does, and returns the error.
func admit(m *Manager, p *corev1.Pod) error {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if err := m.Allocate(p, &list[i], topology.Hint{}); err != nil {
				m.Release(p.UID)
				return err
			}
		}
	}
	return nil
}

// held returns the exclusive CPUs of the pod's containers.
func held(m *Manager, uid types.UID) map[string]string {
	out := map[string]string{}
	for name, cpus := range m.exclusive[uid] {
		out[name] = cpus.String()
	}
	return out
}

func TestAllocate(t *testing.T) {
	for name, c := range map[string]struct {
		machine drawn.Drawing
		options Options
		pods    []string
		want    map[string]string // of the last pod; CPU 0 is reserved
		err     string
	}{
		"a core of its own":                  {machine: threads, pods: []string{"2"}, want: map[string]string{"c0": "1,9"}},
		"the rest of a core":                 {machine: threads, pods: []string{"1"}, want: map[string]string{"c0": "8"}},
		"part of a CPU is shared":            {machine: threads, pods: []string{"1500m"}, want: map[string]string{}},
		"two containers":                     {machine: small, pods: []string{"1 2"}, want: map[string]string{"c0": "1", "c1": "2-3"}},
		"too many":                           {machine: small, pods: []string{"4"}, err: "not enough cpus available to satisfy request: requested=4, available=3"},
		"the second pod":                     {machine: small, pods: []string{"2", "2"}, err: "requested=2, available=1"},
		"init containers are reused":         {machine: small, pods: []string{"init:2 init:3 1 2"}, want: map[string]string{"c0": "1-2", "c1": "1-3", "c2": "1", "c3": "2-3"}},
		"sidecars are not reused":            {machine: small, pods: []string{"init:2 sidecar:1 init:1 2"}, want: map[string]string{"c0": "1-2", "c1": "1", "c2": "2", "c3": "2-3"}},
		"a whole socket":                     {machine: threads, pods: []string{"8"}, want: map[string]string{"c0": "4-7,12-15"}},
		"small requests keep a socket whole": {machine: threads, pods: []string{"1", "2", "4"}, want: map[string]string{"c0": "2-3,10-11"}},
		"full cores":                         {machine: threads, options: Options{FullCores: true}, pods: []string{"2"}, want: map[string]string{"c0": "1,9"}},
		"no full cores":                      {machine: threads, options: Options{FullCores: true}, pods: []string{"3"}, err: "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"},
		"not enough full cores":              {machine: threads, options: Options{FullCores: true}, pods: []string{"14", "2"}, err: "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 0, requested CPUs = 2, CPUs per core = 2"},
		"across nodes":                       {machine: nodes, options: Options{SpreadNodes: true}, pods: []string{"12"}, want: map[string]string{"c0": "4-6,8-10,20-22,24-26"}},
		"across nodes, whole cores":          {machine: nodes, options: Options{SpreadNodes: true, FullCores: true}, pods: []string{"10"}, want: map[string]string{"c0": "4-6,8-9,20-22,24-25"}},
		"across cores":                       {machine: threads, options: Options{SpreadCores: true}, pods: []string{"3"}, want: map[string]string{"c0": "1-3"}},
		"strict reservation":                 {machine: small, options: Options{Strict: true}, pods: []string{"3"}, want: map[string]string{"c0": "1-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTest(t, c.machine, c.options)
			var err error
			var last types.UID
			for i, words := range c.pods {
				last = types.UID(fmt.Sprint("pod", i))
				err = admit(m, pod(string(last), words))
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
			if diff := cmp.Diff(c.want, held(m, last)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReservedCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		milli    int64
		explicit string
		want     string
		err      string
	}{
		"rounded up":       {milli: 1001, want: "0,8"},
		"explicit":         {milli: 1000, explicit: "3,11", want: "3,11"},
		"nothing reserved": {err: "needs reserved CPUs"},
		"unknown CPU":      {milli: 1000, explicit: "16", err: "not all among the machine's CPUs"},
		"more than exist":  {milli: 17000, err: "17 CPUs are to be reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t.TempDir(), threads, Options{})
			cfg.ReservedMilli = c.milli
			cfg.Reserved, _ = cpuset.Parse(c.explicit)
			m, err := New(cfg)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || m.Reserved().String() != c.want {
				t.Errorf("reserved %v, %v; want %s", m.Reserved(), err, c.want)
			}
		})
	}
}

// TestPodsComeAndGo admits and removes random pods on drawn machines and restarts the
// manager at random. After each step the CPUs are divided as they must be.
func TestPodsComeAndGo(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			d := []drawn.Drawing{small, threads, nodes, holes}[r.IntN(4)]
			o := []Options{{}, {FullCores: true}, {SpreadNodes: true}, {SpreadCores: true}, {Strict: true}, {Caches: true}, {Sockets: true}, {FullCores: true, SpreadNodes: true}}[r.IntN(8)]
			cfg := config(t.TempDir(), d, o)
			cfg.ReservedMilli = 1 + r.Int64N(2000)
			m, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			there := map[types.UID]*corev1.Pod{}
			for i := range 60 {
				switch r.IntN(5) {
				case 0:
					if uids := slices.Sorted(maps.Keys(there)); len(uids) > 0 {
						uid := uids[r.IntN(len(uids))]
						m.Release(uid)
						delete(there, uid)
					}
				case 1:
					before := m.exclusive
					if m, err = New(cfg); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(before, m.exclusive, cmp.Comparer(cpuset.CPUSet.Equals)); diff != "" {
						t.Fatal("a restart changes the CPUs:", diff)
					}
				default:
					p := pod(fmt.Sprint("pod", i), randomWords(r))
					if admitRandomly(m, p, r) == nil {
						there[p.UID] = p
					}
				}
				checkDivision(t, m, there)
			}
		})
	}
}

func randomWords(r *rand.Rand) string {
	kinds := []string{"%d", "%d", "%d %d", "init:%d %d", "sidecar:%d %d", "init:%d sidecar:%d init:%d %d", "%dm"}
	text := kinds[r.IntN(len(kinds))]
	for strings.Contains(text, "%d") {
		text = strings.Replace(text, "%d", fmt.Sprint(1+r.IntN(6)), 1)
	}
	return text
}

// admitRandomly admits the pod with the hints of one of the scopes.
func admitRandomly(m *Manager, p *corev1.Pod, r *rand.Rand) error {
	policies := []string{topology.None, topology.BestEffort, topology.Restricted, topology.SingleNode}
	scopes := []string{topology.ScopeContainer, topology.ScopePod}
	t, err := topology.New(topology.Config{Policy: policies[r.IntN(4)], Scope: scopes[r.IntN(2)], Machine: m.machine, Providers: []topology.Provider{m}})
	if err != nil {
		return err
	}
	if refusal := t.Admit(p); refusal != nil {
		return fmt.Errorf("%s: %s", refusal.Reason, refusal.Message)
	}
	return nil
}

func checkDivision(t *testing.T, m *Manager, there map[types.UID]*corev1.Pod) {
	t.Helper()
	taken := cpuset.New()
	for uid, containers := range m.exclusive {
		p := there[uid]
		if p == nil {
			t.Fatalf("pod %s is gone and has %v", uid, containers)
		}
		own := cpuset.New()
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if cpus, n := containers[list[i].Name], Wanted(p, &list[i]); cpus.Size() != n {
					t.Fatalf("pod %s: container %s has %s, wants %d", uid, list[i].Name, cpus, n)
				}
				if cpus := containers[list[i].Name]; m.options.FullCores && !m.wholeCores(cpus).Equals(cpus) {
					t.Fatalf("pod %s: container %s has parts of cores: %s", uid, list[i].Name, cpus)
				}
				own = own.Union(containers[list[i].Name])
			}
		}
		if most := wantedByPod(p); own.Size() > most {
			t.Fatalf("pod %s has %s, requests %d", uid, own, most)
		}
		if both := own.Intersection(taken); !both.IsEmpty() {
			t.Fatalf("CPUs %s belong to two pods", both)
		}
		checkApart(t, p, containers)
		taken = taken.Union(own)
	}
	if both := taken.Intersection(m.Reserved()); !both.IsEmpty() {
		t.Fatalf("reserved CPUs %s are exclusive", both)
	}
	if shared := m.Shared(); shared.IsEmpty() || !shared.Intersection(taken).IsEmpty() {
		t.Fatalf("shared pool %q beside %q", shared, taken)
	}
}

// checkApart checks that containers that run at the same time have different CPUs.
func checkApart(t *testing.T, p *corev1.Pod, has map[string]cpuset.CPUSet) {
	t.Helper()
	running := cpuset.New() // sidecars, then app containers
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if !has[c.Name].Intersection(running).IsEmpty() {
			t.Fatalf("pod %s: %s shares CPUs with a sidecar: %v", p.UID, c.Name, has)
		}
		if c.RestartPolicy != nil {
			running = running.Union(has[c.Name])
		}
	}
	for _, c := range p.Spec.Containers {
		if !has[c.Name].Intersection(running).IsEmpty() {
			t.Fatalf("pod %s: %s shares CPUs: %v", p.UID, c.Name, has)
		}
		running = running.Union(has[c.Name])
	}
}
