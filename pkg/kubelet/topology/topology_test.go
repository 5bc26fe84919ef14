package topology

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/hardware/drawn"
)

var two = drawn.Drawing{Sockets: 2, Nodes: 2, Cores: 4, Threads: 1}

func TestMask(t *testing.T) {
	m := Of(0, 2, 63)
	if diff := cmp.Diff([]int{0, 2, 63}, m.Nodes()); diff != "" || m.Count() != 3 || !m.Has(2) || m.Has(1) {
		t.Error(m, diff)
	}
	if got := slices.Collect(Of(0, 2).Subsets()); !slices.Equal(got, []Mask{1, 4, 5}) {
		t.Errorf("subsets of 5: %v", got)
	}
	if len(slices.Collect(Mask(0).Subsets())) != 0 {
		t.Error("the empty mask has subsets")
	}
}

// provider is a Provider with fixed hints.
type provider struct {
	hints    map[string][]Hint
	fail     error
	failAt   string
	given    []string
	released []types.UID
}

func (p *provider) Hints(*corev1.Pod, *corev1.Container) map[string][]Hint { return p.hints }
func (p *provider) PodHints(*corev1.Pod) map[string][]Hint                 { return p.hints }
func (p *provider) Release(uid types.UID)                                  { p.released = append(p.released, uid) }
func (p *provider) Allocate(_ *corev1.Pod, c *corev1.Container, at Hint) error {
	if c.Name == p.failAt {
		return p.fail
	}
	p.given = append(p.given, fmt.Sprintf("%s at %v", c.Name, at.Nodes.Nodes()))
	return nil
}

func testPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "app"}},
	}}
}

type smtError struct{}

func (smtError) Error() string  { return "SMT" }
func (smtError) Reason() string { return "SMTAlignmentError" }

func TestAdmit(t *testing.T) {
	affinity := &Refusal{"TopologyAffinityError", "Resources cannot be allocated with Topology locality"}
	one, both := Hint{Nodes: 2, Preferred: true}, Hint{Nodes: 3}
	hints := func(h ...Hint) map[string][]Hint { return map[string][]Hint{"cpu": h} }
	for name, c := range map[string]struct {
		policy, scope string
		hints         map[string][]Hint
		failAt        string
		fail          error
		want          *Refusal
		given         []string
	}{
		"none does not ask":            {policy: None, hints: hints(), given: []string{"init at []", "app at []"}},
		"no preference":                {policy: SingleNode, given: []string{"init at []", "app at []"}},
		"one node":                     {policy: SingleNode, hints: hints(one, both), given: []string{"init at [1]", "app at [1]"}},
		"one node, pod scope":          {policy: Restricted, scope: ScopePod, hints: hints(one, both), given: []string{"init at [1]", "app at [1]"}},
		"single needs one":             {policy: SingleNode, hints: hints(Hint{Nodes: 3, Preferred: true}), want: affinity},
		"restricted takes preferred":   {policy: Restricted, hints: hints(Hint{Nodes: 3, Preferred: true}), given: []string{"init at [0 1]", "app at [0 1]"}},
		"restricted refuses":           {policy: Restricted, hints: hints(both), want: affinity},
		"restricted refuses a pod":     {policy: Restricted, scope: ScopePod, hints: hints(both), want: affinity},
		"best effort takes what there": {policy: BestEffort, hints: hints(both), given: []string{"init at [0 1]", "app at [0 1]"}},
		"nothing is possible":          {policy: Restricted, hints: hints(), want: affinity},
		"allocation fails": {
			policy: None, failAt: "app", fail: errors.New("no CPU"), given: []string{"init at []"},
			want: &Refusal{"UnexpectedAdmissionError", "Allocate failed due to no CPU, which is unexpected"},
		},
		"allocation fails with a reason": {policy: None, failAt: "init", fail: fmt.Errorf("x: %w", smtError{}), want: &Refusal{"SMTAlignmentError", "x: SMT"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{hints: c.hints, fail: c.fail, failAt: c.failAt}
			m, err := New(Config{Policy: c.policy, Scope: c.scope, Machine: two.Machine(), Providers: []Provider{p}})
			if err != nil {
				t.Fatal(err)
			}
			if c.hints != nil && len(c.hints["cpu"]) == 0 {
				p.hints["cpu"] = []Hint{}
			}
			if diff := cmp.Diff(c.want, m.Admit(testPod())); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.given, p.given); diff != "" {
				t.Error(diff)
			}
			if (len(p.released) == 1) != (c.want != nil) {
				t.Errorf("released %v", p.released)
			}
		})
	}
}

func TestRestoreRefusesNothing(t *testing.T) {
	a, b := &provider{failAt: "init", fail: errors.New("no CPU")}, &provider{}
	m, err := New(Config{Policy: SingleNode, Machine: two.Machine(), Providers: []Provider{b, a}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(testPod()); err == nil || err.Error() != "no CPU" {
		t.Error(err)
	}
	if len(a.given) != 1 || len(b.given) != 2 || len(a.released)+len(b.released) != 0 {
		t.Errorf("given %v and %v, released %v", a.given, b.given, a.released)
	}
}

func TestConfigIsRefused(t *testing.T) {
	nine := drawn.Drawing{Sockets: 9, Nodes: 9, Cores: 9, Threads: 1}
	unknown := two.Machine()
	n := unknown.Nodes[1]
	n.Distances = nil
	unknown.Nodes[1] = n
	for want, c := range map[string]Config{
		`policy "single"`: {Policy: "single"},
		`scope "node"`:    {Scope: "node"},
		"option x=1: the option is not supported": {Options: map[string]string{"x": "1"}},
		"want 8 to 64":             {Options: map[string]string{"max-allowable-numa-nodes": "7"}},
		"invalid syntax":           {Options: map[string]string{"prefer-closest-numa-nodes": "maybe"}},
		"has 9 NUMA nodes":         {Policy: BestEffort, Machine: nine.Machine()},
		"distances of NUMA node 1": {Policy: BestEffort, Machine: unknown, Options: map[string]string{"prefer-closest-numa-nodes": "true"}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := New(Config{Policy: BestEffort, Machine: nine.Machine(), Options: map[string]string{"max-allowable-numa-nodes": "9"}}); err != nil {
		t.Error(err)
	}
}

// TestMergeAgreesWithTheReference compares merge with one that looks at every
// combination of the hints and has upstream's rules as separate cases.
func TestMergeAgreesWithTheReference(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		nodes := 1 + r.IntN(4)
		d := drawn.Drawing{Sockets: 1, Nodes: nodes, Cores: nodes, Threads: 1}
		m, err := New(Config{Policy: BestEffort, Machine: d.Machine()})
		if err != nil {
			t.Fatal(err)
		}
		m.closest = r.IntN(2) == 0
		for a := range nodes {
			for b := range a {
				m.distances[a][b] = 11 + r.IntN(20)
				m.distances[b][a] = m.distances[a][b]
			}
		}
		resources := randomHints(r, nodes)
		got, want := m.merge(resources), reference(m, resources)
		if got != want {
			t.Fatalf("seed %d: hints %v of %d nodes: merged %v, want %v", seed, resources, nodes, got, want)
		}
	}
}

func randomHints(r *rand.Rand, nodes int) [][]Hint {
	out := make([][]Hint, r.IntN(4))
	for i := range out {
		for range r.IntN(5) {
			out[i] = append(out[i], Hint{Nodes: Mask(r.IntN(1 << nodes)), Preferred: r.IntN(2) == 0})
		}
	}
	return out
}

// reference merges hints slowly.
func reference(m *Manager, resources [][]Hint) Hint {
	fewest := 0
	for _, hints := range resources {
		least := 0
		for _, h := range hints {
			if n := h.Nodes.Count(); n != 0 && (least == 0 || n < least) {
				least = n
			}
		}
		fewest = max(fewest, least)
	}
	var best *Hint
	var visit func(i int, chosen []Hint)
	visit = func(i int, chosen []Hint) {
		if i < len(resources) {
			for _, h := range resources[i] {
				visit(i+1, append(slices.Clone(chosen), h))
			}
			return
		}
		if h := together(m.all, chosen); h.Nodes != 0 && (best == nil || better(m, h, *best, fewest)) {
			best = &h
		}
	}
	visit(0, nil)
	if best == nil {
		return Hint{Nodes: m.all}
	}
	return *best
}

func together(all Mask, chosen []Hint) Hint {
	out, first := Hint{Nodes: all, Preferred: true}, Mask(0)
	for _, h := range chosen {
		out.Preferred = out.Preferred && h.Preferred
		if h.Nodes == 0 {
			continue
		}
		if first == 0 {
			first = h.Nodes
		}
		out.Preferred = out.Preferred && h.Nodes == first
		out.Nodes &= h.Nodes
	}
	return out
}

// better reports whether a replaces b.
func better(m *Manager, a, b Hint, fewest int) bool {
	x, y := a.Nodes.Count(), b.Nodes.Count()
	narrower := x < y || x == y && a.Nodes < b.Nodes
	if m.closest && x == y {
		near := func(n Mask) float64 { return float64(m.distance(n)) / float64(x*x) }
		narrower = near(a.Nodes) < near(b.Nodes) || near(a.Nodes) == near(b.Nodes) && a.Nodes < b.Nodes
	}
	switch {
	case a.Preferred != b.Preferred:
		return a.Preferred
	case a.Preferred:
		return narrower
	case y > fewest:
		return narrower
	case y == fewest:
		return x == y && narrower
	case x > fewest:
		return false
	case x == fewest || x > y:
		return true
	default:
		return x == y && narrower
	}
}
