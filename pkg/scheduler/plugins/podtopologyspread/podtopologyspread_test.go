package podtopologyspread_test

import (
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
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/podtopologyspread"
	"podium/pkg/scheduler/plugins/taints"
	"podium/pkg/scheduler/snapshot"
)

// The reference implements upstream's documented rules on lists of API objects.

type cluster struct {
	nodes   map[string]*corev1.Node
	pods    map[string]*corev1.Pod
	lenient bool // the pod has the system's constraints
}

// system are the constraints of pods of a Service without constraints of their own.
func system(selector map[string]string) []corev1.TopologySpreadConstraint {
	s := &metav1.LabelSelector{MatchLabels: selector}
	return []corev1.TopologySpreadConstraint{
		{MaxSkew: 3, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: s},
		{MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: s},
	}
}

func constraintsOf(pod *corev1.Pod, action corev1.UnsatisfiableConstraintAction) []corev1.TopologySpreadConstraint {
	return slices.DeleteFunc(slices.Clone(pod.Spec.TopologySpreadConstraints), func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable != action
	})
}

func (c *cluster) hasKeys(n *corev1.Node, list []corev1.TopologySpreadConstraint) bool {
	if c.lenient {
		return true
	}
	for _, c := range list {
		if _, ok := n.Labels[c.TopologyKey]; !ok {
			return false
		}
	}
	return true
}

func matches(c corev1.TopologySpreadConstraint, pod, other *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil || other.Namespace != pod.Namespace || other.DeletionTimestamp != nil || !selector.Matches(labels.Set(other.Labels)) {
		return false
	}
	for _, key := range c.MatchLabelKeys {
		want, set := pod.Labels[key]
		if got, ok := other.Labels[key]; set && (!ok || got != want) {
			return false
		}
	}
	return true
}

func counts(c corev1.TopologySpreadConstraint, pod *corev1.Pod, n *corev1.Node) bool {
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == "Honor" {
		if ok, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); !ok {
			return false
		}
	}
	if c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == "Honor" {
		for _, t := range n.Spec.Taints {
			if t.Effect != "PreferNoSchedule" && !taints.Tolerated(pod.Spec.Tolerations, t) {
				return false
			}
		}
	}
	return true
}

func (c *cluster) on(node string, wanted func(*corev1.Pod) bool) int {
	count := 0
	for _, p := range c.pods {
		if p.Spec.NodeName == node && wanted(p) {
			count++
		}
	}
	return count
}

// perDomain counts the matching pods of each domain.
func (c *cluster) perDomain(pod *corev1.Pod, list []corev1.TopologySpreadConstraint, of corev1.TopologySpreadConstraint) map[string]int {
	out := map[string]int{}
	for _, n := range c.nodes {
		if c.hasKeys(n, list) && counts(of, pod, n) {
			out[n.Labels[of.TopologyKey]] += c.on(n.Name, func(p *corev1.Pod) bool { return matches(of, pod, p) })
		}
	}
	return out
}

func (c *cluster) filter(pod *corev1.Pod, n *corev1.Node) string {
	list := constraintsOf(pod, corev1.DoNotSchedule)
	for _, of := range list {
		domain, ok := n.Labels[of.TopologyKey]
		if !ok {
			return "[node(s) didn't match pod topology spread constraints (missing required label)] true"
		}
		domains := c.perDomain(pod, list, of)
		least := math.MaxInt
		for _, count := range domains {
			least = min(least, count)
		}
		if of.MinDomains != nil && len(domains) < int(*of.MinDomains) || len(domains) == 0 {
			least = 0
		}
		self := 0
		alive := *pod
		alive.DeletionTimestamp = nil
		if matches(of, pod, &alive) {
			self = 1
		}
		if domains[domain]+self-least > int(of.MaxSkew) {
			return "[node(s) didn't match pod topology spread constraints] false"
		}
	}
	return ""
}

func (c *cluster) scores(pod *corev1.Pod, feasible []string) map[string]int64 {
	list := constraintsOf(pod, corev1.ScheduleAnyway)
	out, raw := map[string]int64{}, map[string]int64{}
	lowest, highest := int64(math.MaxInt64), int64(0)
	for _, name := range feasible {
		n := c.nodes[name]
		if !c.hasKeys(n, list) {
			continue
		}
		sum := 0.0
		for _, of := range list {
			size := map[string]bool{}
			for _, other := range feasible {
				if o := c.nodes[other]; c.hasKeys(o, list) {
					if of.TopologyKey == corev1.LabelHostname {
						size[o.Name] = true
					} else {
						size[o.Labels[of.TopologyKey]] = true
					}
				}
			}
			if _, ok := n.Labels[of.TopologyKey]; !ok {
				continue
			}
			count := c.perDomain(pod, list, of)[n.Labels[of.TopologyKey]]
			if of.TopologyKey == corev1.LabelHostname {
				count = c.on(n.Name, func(p *corev1.Pod) bool { return matches(of, pod, p) })
			}
			sum += float64(count)*math.Log(float64(len(size)+2)) + float64(of.MaxSkew-1)
		}
		raw[name] = int64(math.Round(sum))
		lowest, highest = min(lowest, raw[name]), max(highest, raw[name])
	}
	for name, score := range raw {
		out[name] = 100
		if highest > 0 {
			out[name] = 100 * (highest + lowest - score) / highest
		}
	}
	return out
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomNode(r *rand.Rand, name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, key := range []string{"zone", corev1.LabelTopologyZone, "rack", corev1.LabelHostname} {
		if r.IntN(6) > 0 {
			n.Labels[key] = pick(r, "a", "b", "c")
		}
	}
	if r.IntN(5) > 0 {
		n.Labels[corev1.LabelHostname] = name
	}
	if r.IntN(4) == 0 {
		n.Spec.Taints = []corev1.Taint{{Key: pick(r, "k", "l"), Effect: pick(r, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)}}
	}
	n.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("110")}
	return n
}

func randomPod(r *rand.Rand, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, "ns", "ns", "other"), Name: name, UID: types.UID(name), Labels: map[string]string{}}}
	for _, key := range []string{"app", "hash"} {
		if r.IntN(4) > 0 {
			p.Labels[key] = pick(r, "x", "y")
		}
	}
	if r.IntN(4) == 0 {
		p.Spec.NodeSelector = map[string]string{"rack": "a"}
	}
	if r.IntN(3) == 0 {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	}
	policy := func() *corev1.NodeInclusionPolicy {
		return pick(r, nil, new(corev1.NodeInclusionPolicyHonor), new(corev1.NodeInclusionPolicyIgnore))
	}
	for range r.IntN(4) {
		c := corev1.TopologySpreadConstraint{
			MaxSkew: int32(1 + r.IntN(3)), TopologyKey: pick(r, "zone", "rack", corev1.LabelHostname),
			WhenUnsatisfiable:  pick(r, corev1.DoNotSchedule, corev1.ScheduleAnyway),
			NodeAffinityPolicy: policy(), NodeTaintsPolicy: policy(),
			LabelSelector: pick(r, nil, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}),
		}
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && r.IntN(3) == 0 {
			c.MinDomains = new(int32(1 + r.IntN(4)))
		}
		if r.IntN(3) == 0 {
			c.MatchLabelKeys = []string{"hash"}
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	return p
}

func (c *cluster) change(r *rand.Rand, snap *snapshot.Snapshot) {
	node, pod := fmt.Sprint("n", r.IntN(8)), randomPod(r, fmt.Sprint("p", r.IntN(30)))
	switch r.IntN(8) {
	case 0, 1:
		c.nodes[node] = randomNode(r, node)
		snap.SetNode(c.nodes[node])
	case 2:
		delete(c.nodes, node)
		snap.RemoveNode(node)
	case 3:
		delete(c.pods, pod.Name)
		snap.Remove(pod.UID)
	default:
		pod.Spec.NodeName = node
		if r.IntN(6) == 0 {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		c.pods[pod.Name] = pod
		snap.Assign(pod)
	}
}

// asConstrained returns the pod with the constraints that it gets by its Services.
func (c *cluster) asConstrained(pod *corev1.Pod) *corev1.Pod {
	selector := map[string]string{}
	if pod.Namespace == "ns" && pod.Labels["app"] == "x" {
		selector["app"] = "x"
	}
	if pod.Namespace == "ns" && pod.Labels["hash"] == "y" {
		selector["hash"] = "y"
	}
	c.lenient = len(selector) > 0 && len(pod.Spec.TopologySpreadConstraints) == 0
	if !c.lenient {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Spec.TopologySpreadConstraints = system(selector)
	return pod
}

// TestAgreesWithReference applies random changes. After each one it compares a plugin that was
// updated incrementally with the reference.
func TestAgreesWithReference(t *testing.T) {
	rejected, ranked, lenient := 0, 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		c, snap := &cluster{nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}}, snapshot.New()
		scheduler := framework.New([]framework.Weighted{{Plugin: podtopologyspread.System(), Weight: 1}}, nil)
		snap.SetService("ns", "a", map[string]string{"app": "x"})
		snap.SetService("ns", "b", map[string]string{"hash": "y"})
		snap.SetService("ns", "none", nil)
		templates := []*corev1.Pod{randomPod(r, "q0"), randomPod(r, "q1"), randomPod(r, "q2")}
		for range 120 {
			c.change(r, snap)
			pod := pick(r, templates...)
			place, err := scheduler.Schedule(snap, snapshot.NewPod(pod))
			if len(c.nodes) == 0 {
				continue
			}
			pod = c.asConstrained(pod)
			var feasible []string
			want := map[string]string{}
			for name, n := range c.nodes {
				if reason := c.filter(pod, n); reason != "" {
					want[name] = reason
				} else {
					feasible = append(feasible, name)
				}
			}
			if len(feasible) == 0 {
				rejected++
				fit, ok := err.(*framework.FitError)
				if !ok {
					t.Fatalf("seed %d: %+v, %v; want %v", seed, place, err, want)
				}
				for _, n := range fit.Nodes {
					if got := fmt.Sprint(n.Reasons, n.Code == framework.UnschedulableAndUnresolvable); got != want[n.Node] {
						t.Fatalf("seed %d, node %s: got %s, want %s", seed, n.Node, got, want[n.Node])
					}
				}
				continue
			}
			scores := map[string]int64{}
			if len(constraintsOf(pod, corev1.ScheduleAnyway)) > 0 {
				ranked++
				if c.lenient {
					lenient++
				}
				scores = c.scores(pod, feasible)
			}
			best := int64(0)
			for _, s := range scores {
				best = max(best, s)
			}
			if err != nil || place.Feasible != len(feasible) || place.Score != best || scores[place.Node] != best || want[place.Node] != "" {
				t.Fatalf("seed %d: got %+v, %v; want %d feasible nodes of scores %v", seed, place, err, len(feasible), scores)
			}
		}
	}
	if rejected < 100 || ranked < 500 || lenient < 300 {
		t.Errorf("%d pods fit nowhere, %d were ranked, %d of them by default: the histories test too little", rejected, ranked, lenient)
	}
}

// BenchmarkSchedule places pods with a hard zone and a soft host constraint.
func BenchmarkSchedule(b *testing.B) {
	snap := snapshot.New()
	for i := range 5000 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Labels = map[string]string{"zone": fmt.Sprint(i % 3), corev1.LabelHostname: n.Name}
		snap.SetNode(n)
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	s := framework.New([]framework.Weighted{{Plugin: podtopologyspread.Plugin{}, Weight: 2}}, rand.New(rand.NewPCG(1, 1)))
	i := 0
	for b.Loop() {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i)), Labels: selector.MatchLabels}}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector},
			{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector},
		}
		i++
		sp := snapshot.NewPod(p)
		place, err := s.Schedule(snap, sp)
		if err != nil {
			b.Fatal(err)
		}
		snap.Assume(sp, place.Node)
	}
}
