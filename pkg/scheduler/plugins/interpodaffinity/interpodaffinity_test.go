package interpodaffinity_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/interpodaffinity"
	"podium/pkg/scheduler/snapshot"
)

// The reference implements upstream's documented rules on lists of API objects.

type cluster struct {
	nodes      map[string]*corev1.Node
	pods       map[string]*corev1.Pod
	namespaces map[string]map[string]string
}

type weighted = corev1.WeightedPodAffinityTerm

// terms returns the four lists of a pod.
func terms(p *corev1.Pod) (near, apart []corev1.PodAffinityTerm, liked, disliked []weighted) {
	if p.Spec.Affinity == nil {
		return
	}
	if a := p.Spec.Affinity.PodAffinity; a != nil {
		near, liked = a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution
	}
	if a := p.Spec.Affinity.PodAntiAffinity; a != nil {
		apart, disliked = a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return
}

// selects reports whether a term of owner is about pod.
func (c *cluster) selects(owner *corev1.Pod, t corev1.PodAffinityTerm, pod *corev1.Pod) bool {
	in := slices.Contains(t.Namespaces, pod.Namespace)
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		in = owner.Namespace == pod.Namespace
	}
	if t.NamespaceSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
		in = in || err == nil && s.Matches(labels.Set(c.namespaces[pod.Namespace]))
	}
	s, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	return in && err == nil && s.Matches(labels.Set(pod.Labels))
}

// near calls f for each pod in the domain of the node.
func (c *cluster) near(n *corev1.Node, key string, f func(*corev1.Pod)) {
	domain, ok := n.Labels[key]
	if !ok {
		return
	}
	for _, p := range c.pods {
		if o := c.nodes[p.Spec.NodeName]; o != nil {
			if d, ok := o.Labels[key]; ok && d == domain {
				f(p)
			}
		}
	}
}

func (c *cluster) count(n *corev1.Node, key string, wanted func(*corev1.Pod) bool) int {
	count := 0
	c.near(n, key, func(p *corev1.Pod) {
		if wanted(p) {
			count++
		}
	})
	return count
}

func (c *cluster) filter(pod *corev1.Pod, n *corev1.Node) string {
	near, apart, _, _ := terms(pod)
	all := func(p *corev1.Pod) bool {
		return !slices.ContainsFunc(near, func(t corev1.PodAffinityTerm) bool { return !c.selects(pod, t, p) })
	}
	first := all(pod)
	for _, o := range c.nodes {
		for _, t := range near {
			first = first && c.count(o, t.TopologyKey, all) == 0
		}
	}
	for _, t := range near {
		if _, ok := n.Labels[t.TopologyKey]; !ok || c.count(n, t.TopologyKey, all) == 0 && !first {
			return "[node(s) didn't match pod affinity rules] true"
		}
	}
	for _, t := range apart {
		if c.count(n, t.TopologyKey, func(p *corev1.Pod) bool { return c.selects(pod, t, p) }) > 0 {
			return "[node(s) didn't match pod anti-affinity rules] false"
		}
	}
	for _, p := range c.pods {
		_, apart, _, _ := terms(p)
		for _, t := range apart {
			if c.selects(p, t, pod) && c.count(n, t.TopologyKey, func(o *corev1.Pod) bool { return o == p }) > 0 {
				return "[node(s) didn't satisfy existing pods anti-affinity rules] false"
			}
		}
	}
	return ""
}

func (c *cluster) score(pod *corev1.Pod, n *corev1.Node) int64 {
	sum := 0
	_, _, liked, disliked := terms(pod)
	for sign, list := range map[int][]weighted{1: liked, -1: disliked} {
		for _, t := range list {
			sum += sign * int(t.Weight) * c.count(n, t.PodAffinityTerm.TopologyKey, func(p *corev1.Pod) bool { return c.selects(pod, t.PodAffinityTerm, p) })
		}
	}
	for _, p := range c.pods {
		near, _, liked, disliked := terms(p)
		add := func(weight int, t corev1.PodAffinityTerm) {
			if c.selects(p, t, pod) {
				sum += weight * c.count(n, t.TopologyKey, func(o *corev1.Pod) bool { return o == p })
			}
		}
		for _, t := range near {
			add(1, t)
		}
		for _, t := range liked {
			add(int(t.Weight), t.PodAffinityTerm)
		}
		for _, t := range disliked {
			add(-int(t.Weight), t.PodAffinityTerm)
		}
	}
	return int64(sum)
}

func (c *cluster) scores(pod *corev1.Pod, feasible []string) map[string]int64 {
	out := map[string]int64{}
	lowest, highest := int64(math.MaxInt64), int64(math.MinInt64)
	for _, name := range feasible {
		out[name] = c.score(pod, c.nodes[name])
		lowest, highest = min(lowest, out[name]), max(highest, out[name])
	}
	for name, raw := range out {
		out[name] = 0
		if highest > lowest {
			out[name] = int64(100 * (float64(raw-lowest) / float64(highest-lowest)))
		}
	}
	return out
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomNode(r *rand.Rand, name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, key := range []string{"zone", "rack"} {
		if r.IntN(6) > 0 {
			n.Labels[key] = pick(r, "a", "b", "c")
		}
	}
	n.Labels[corev1.LabelHostname] = name
	n.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("110")}
	return n
}

func randomSelector(r *rand.Rand, key string) *metav1.LabelSelector {
	op := pick(r, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
	e := metav1.LabelSelectorRequirement{Key: key, Operator: op}
	if op == metav1.LabelSelectorOpIn || op == metav1.LabelSelectorOpNotIn {
		e.Values = pick(r, []string{"x"}, []string{"x", "y"})
	}
	return pick(r, nil, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{key: "x"}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{e}})
}

func randomTerms(r *rand.Rand, most int) []corev1.PodAffinityTerm {
	var out []corev1.PodAffinityTerm
	for range r.IntN(most + 1) {
		t := corev1.PodAffinityTerm{TopologyKey: pick(r, "zone", "rack", corev1.LabelHostname), LabelSelector: randomSelector(r, "app")}
		if r.IntN(3) == 0 {
			t.Namespaces = pick(r, []string{"ns"}, []string{"other", "third"})
		}
		if r.IntN(3) == 0 {
			t.NamespaceSelector = randomSelector(r, "team")
		}
		out = append(out, t)
	}
	return out
}

func randomWeighted(r *rand.Rand) []weighted {
	var out []weighted
	for _, t := range randomTerms(r, 2) {
		out = append(out, weighted{Weight: int32(1 + r.IntN(100)), PodAffinityTerm: t})
	}
	return out
}

func randomPod(r *rand.Rand, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, "ns", "ns", "other", "third"), Name: name, UID: types.UID(name)}}
	if r.IntN(5) > 0 {
		p.Labels = map[string]string{"app": pick(r, "x", "y", "z")}
	}
	if r.IntN(3) > 0 {
		return p
	}
	p.Spec.Affinity = &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: randomWeighted(r)},
	}
	if r.IntN(4) == 0 {
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = randomTerms(r, 2)
	}
	if r.IntN(3) > 0 {
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: randomTerms(r, 1), PreferredDuringSchedulingIgnoredDuringExecution: randomWeighted(r)}
	}
	return p
}

func (c *cluster) change(r *rand.Rand, snap *snapshot.Snapshot) {
	node, pod := fmt.Sprint("n", r.IntN(8)), randomPod(r, fmt.Sprint("p", r.IntN(12)))
	switch r.IntN(10) {
	case 0, 1:
		c.nodes[node] = randomNode(r, node)
		snap.SetNode(c.nodes[node])
	case 2:
		delete(c.nodes, node)
		snap.RemoveNode(node)
	case 3, 4:
		delete(c.pods, pod.Name)
		snap.Remove(pod.UID)
	case 5:
		c.label(snap, pod.Namespace, pick(r, nil, map[string]string{"team": "x"}, map[string]string{"team": "y"}))
	default:
		pod.Spec.NodeName = node
		c.pods[pod.Name] = pod
		snap.Assign(pod)
	}
}

func (c *cluster) label(snap *snapshot.Snapshot, namespace string, labels map[string]string) {
	c.namespaces[namespace] = labels
	snap.SetNamespace(namespace, labels)
}

// TestAgreesWithReference applies random changes. After each one it compares a plugin that was
// updated incrementally with the reference.
func TestAgreesWithReference(t *testing.T) {
	reasons, ranked := map[string]int{}, 0
	for seed := range uint64(250) {
		r := rand.New(rand.NewPCG(seed, 5))
		c, snap := &cluster{nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, namespaces: map[string]map[string]string{}}, snapshot.New()
		for _, name := range []string{"ns", "other", "third"} {
			c.label(snap, name, nil)
		}
		scheduler := framework.New([]framework.Weighted{{Plugin: interpodaffinity.Plugin{HardPodAffinityWeight: 1}, Weight: 1}}, nil)
		templates := []*corev1.Pod{randomPod(r, "q0"), randomPod(r, "q1"), randomPod(r, "q2"), randomPod(r, "q3")}
		for range 100 {
			c.change(r, snap)
			pod := pick(r, templates...)
			place, err := scheduler.Schedule(snap, snapshot.NewPod(pod))
			if len(c.nodes) == 0 {
				continue
			}
			var feasible []string
			want := map[string]string{}
			for name, n := range c.nodes {
				if want[name] = c.filter(pod, n); want[name] == "" {
					feasible = append(feasible, name)
				}
			}
			if len(feasible) == 0 {
				var fit *framework.FitError
				if !errors.As(err, &fit) {
					t.Fatalf("seed %d: %+v, %v; want %v", seed, place, err, want)
				}
				for _, n := range fit.Nodes {
					got := fmt.Sprint(n.Reasons, n.Code == framework.UnschedulableAndUnresolvable)
					reasons[got]++
					if got != want[n.Node] {
						t.Fatalf("seed %d, node %s: got %s, want %s", seed, n.Node, got, want[n.Node])
					}
				}
				continue
			}
			scores := c.scores(pod, feasible)
			best := int64(0)
			for _, s := range scores {
				best = max(best, s)
			}
			if best > 0 {
				ranked++
			}
			if err != nil || place.Feasible != len(feasible) || place.Score != best || scores[place.Node] != best || want[place.Node] != "" {
				t.Fatalf("seed %d: got %+v, %v; want %d feasible nodes of scores %v", seed, place, err, len(feasible), scores)
			}
		}
	}
	t.Log(reasons, ranked)
	for reason, n := range reasons {
		if n < 100 {
			t.Errorf("%s: only %d times", reason, n)
		}
	}
	if len(reasons) != 3 || ranked < 500 {
		t.Errorf("%v, %d pods were ranked: the histories test too little", reasons, ranked)
	}
}

// BenchmarkSchedule places pods of 100 applications on 5,000 nodes, with required and with
// preferred anti-affinity by host name.
func BenchmarkSchedule(b *testing.B) {
	for _, kind := range []string{"required", "preferred"} {
		b.Run(kind, func(b *testing.B) {
			snap := snapshot.New()
			for i := range 5000 {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
				n.Labels = map[string]string{"zone": fmt.Sprint(i % 3), corev1.LabelHostname: n.Name}
				snap.SetNode(n)
			}
			s := framework.New([]framework.Weighted{{Plugin: interpodaffinity.Plugin{HardPodAffinityWeight: 1}, Weight: 2}}, rand.New(rand.NewPCG(1, 1)))
			i := 0
			for b.Loop() {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{"app": fmt.Sprint(i % 100)}}}
				term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}
				p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
				if kind == "required" {
					p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{term}
				} else {
					p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []weighted{{Weight: 100, PodAffinityTerm: term}}
				}
				i++
				sp := snapshot.NewPod(p)
				place, err := s.Schedule(snap, sp)
				if err != nil {
					b.Fatal(err)
				}
				snap.Assume(sp, place.Node)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pods/s")
		})
	}
}
