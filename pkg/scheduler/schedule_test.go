package scheduler_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func randomTaint(r *rand.Rand) corev1.Taint {
	return corev1.Taint{Key: pick(r, "k", "l"), Value: pick(r, "", "v", "w"), Effect: pick(r, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectPreferNoSchedule)}
}

func randomNode(r *rand.Rand, name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse(pick(r, "500m", "1", "2", "4")), "memory": resource.MustParse(pick(r, "512Mi", "1Gi", "4Gi")),
		"ephemeral-storage": resource.MustParse(pick(r, "1Gi", "10Gi")), "pods": resource.MustParse(pick(r, "2", "5", "110")),
	}
	if oneIn(r, 4) {
		n.Status.Allocatable["example.com/device"] = resource.MustParse(pick(r, "1", "4"))
	}
	for _, k := range []string{"zone", "disk", "size"} {
		if !oneIn(r, 3) {
			n.Labels[k] = pick(r, "a", "b", "3", "7")
		}
	}
	for oneIn(r, 3) {
		n.Spec.Taints = append(n.Spec.Taints, randomTaint(r))
	}
	n.Spec.Unschedulable = oneIn(r, 10)
	return n
}

func randomRequirement(r *rand.Rand) corev1.NodeSelectorRequirement {
	op := pick(r, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)
	req := corev1.NodeSelectorRequirement{Key: pick(r, "zone", "disk", "size"), Operator: op}
	switch op {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		req.Values = []string{pick(r, "a", "b"), pick(r, "3", "7")}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		req.Values = []string{"5"}
	}
	return req
}

func randomTerm(r *rand.Rand) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for !oneIn(r, 2) {
		t.MatchExpressions = append(t.MatchExpressions, randomRequirement(r))
	}
	if oneIn(r, 5) {
		t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n1"}})
	}
	return t
}

func randomContainer(r *rand.Rand) corev1.Container {
	c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
	for name, values := range map[corev1.ResourceName][]string{
		"cpu": {"0", "100m", "250m", "1"}, "memory": {"0", "64Mi", "300Mi"}, "ephemeral-storage": {"100Mi", "2Gi"},
	} {
		if oneIn(r, 2) {
			c.Resources.Requests[name] = resource.MustParse(pick(r, values...))
		}
	}
	if oneIn(r, 15) {
		c.Resources.Requests["example.com/device"] = resource.MustParse("1")
	}
	if oneIn(r, 6) {
		c.Ports = append(c.Ports, corev1.ContainerPort{
			HostPort: pick(r, int32(80), 81), Protocol: pick(r, corev1.ProtocolTCP, corev1.ProtocolUDP), HostIP: pick(r, "", "0.0.0.0", "10.0.0.1", "10.0.0.2")})
	}
	return c
}

func randomPod(r *rand.Rand, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for range 1 + r.IntN(2) {
		p.Spec.Containers = append(p.Spec.Containers, randomContainer(r))
	}
	for oneIn(r, 3) {
		c := randomContainer(r)
		if oneIn(r, 2) {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if oneIn(r, 10) {
		p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("50m")}
	}
	for oneIn(r, 2) {
		t := randomTaint(r)
		tol := corev1.Toleration{Key: pick(r, t.Key, ""), Operator: corev1.TolerationOpExists, Effect: pick(r, t.Effect, "")}
		if tol.Key != "" && oneIn(r, 2) {
			tol.Operator, tol.Value = pick(r, corev1.TolerationOpEqual, ""), t.Value
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, tol)
	}
	if oneIn(r, 5) {
		p.Spec.NodeSelector = map[string]string{pick(r, "zone", "disk"): pick(r, "a", "b")}
	}
	if oneIn(r, 3) {
		a := &corev1.NodeAffinity{}
		if oneIn(r, 2) {
			a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{randomTerm(r), randomTerm(r)}}
		}
		for !oneIn(r, 3) {
			a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.PreferredSchedulingTerm{Weight: int32(1 + r.IntN(100)), Preference: randomTerm(r)})
		}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: a}
	}
	return p
}

// TestFastIsObvious applies random changes to a cluster and compares, after each one, the
// scheduler, which caches, with the reference, which does not.
func TestFastIsObvious(t *testing.T) {
	asked, placed := 0, 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		c, snap := &cluster{}, snapshot.New()
		algorithm := scheduler.NewAlgorithm(nil)
		if oneIn(r, 2) {
			algorithm = scheduler.NewAlgorithm(rand.New(rand.NewPCG(seed, 8)))
		}
		templates := []*corev1.Pod{randomPod(r, "t0"), randomPod(r, "t1"), randomPod(r, "t2")}
		for step := range 80 {
			switch {
			case len(c.nodes) < 3 || oneIn(r, 12):
				c.setNode(snap, randomNode(r, fmt.Sprint("n", r.IntN(12))))
			case oneIn(r, 25):
				i := r.IntN(len(c.nodes))
				snap.RemoveNode(c.nodes[i].Name)
				c.nodes = slices.Delete(c.nodes, i, i+1)
			case oneIn(r, 4) && len(c.pods) > 0:
				i := r.IntN(len(c.pods))
				snap.Remove(c.pods[i].UID)
				c.pods = slices.Delete(c.pods, i, i+1)
			default:
				pod := randomPod(r, fmt.Sprint("p", step))
				if !oneIn(r, 3) {
					pod.Spec = *pick(r, templates...).Spec.DeepCopy()
				}
				asked++
				if c.check(t, seed, algorithm, snap, pod) {
					placed++
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	if placed < asked/4 || placed > asked*9/10 {
		t.Errorf("placed %d of %d: the clusters test one side only", placed, asked)
	}
}

// TestManyNodesAreObvious is TestFastIsObvious for clusters so large that several goroutines
// evaluate the nodes.
func TestManyNodesAreObvious(t *testing.T) {
	placed := 0
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 9))
		c, snap, algorithm := &cluster{}, snapshot.New(), scheduler.NewAlgorithm(nil)
		for i := range 5100 + r.IntN(500) {
			n := randomNode(r, fmt.Sprint("n", i))
			snap.SetNode(n)
			c.nodes = append(c.nodes, n)
		}
		for i := range 12 {
			if c.check(t, seed, algorithm, snap, randomPod(r, fmt.Sprint("p", i))) {
				placed++
			}
		}
		huge := pod("huge", "1000000")
		if t.Failed() || c.check(t, seed, algorithm, snap, huge) {
			t.Fatal("the pod that no node has room for was placed, or the answers differ")
		}
	}
	if placed < 12 {
		t.Errorf("placed %d pods only", placed)
	}
}

func (c *cluster) setNode(snap *snapshot.Snapshot, n *corev1.Node) {
	snap.SetNode(n)
	c.nodes = slices.DeleteFunc(c.nodes, func(o *corev1.Node) bool { return o.Name == n.Name })
	c.nodes = append(c.nodes, n)
}

// check compares both answers, and places the pod if a node fits.
func (c *cluster) check(t *testing.T, seed uint64, algorithm *framework.Scheduler, snap *snapshot.Snapshot, pod *corev1.Pod) bool {
	t.Helper()
	sp := snapshot.NewPod(pod)
	place, err := algorithm.Schedule(snap, sp)
	scores := c.obviousScores(pod)
	if err != nil {
		var fit *framework.FitError
		if !errors.As(err, &fit) || len(scores) > 0 {
			t.Errorf("seed %d, %s: %v, but %v fit", seed, pod.Name, err, scores)
			return false
		}
		if err.Error() != c.obviousMessage(pod) {
			t.Errorf("seed %d, %s:\n got %v\nwant %s", seed, pod.Name, err, c.obviousMessage(pod))
		}
		for _, n := range fit.Nodes {
			i := slices.IndexFunc(c.nodes, func(o *corev1.Node) bool { return o.Name == n.Node })
			if want := c.obviousReasons(pod, c.nodes[i]); !slices.Equal(n.Reasons, want) {
				t.Errorf("seed %d, %s on %s: %v, want %v", seed, pod.Name, n.Node, n.Reasons, want)
			}
		}
		return false
	}
	best := int64(-1)
	for _, score := range scores {
		best = max(best, score)
	}
	if scores[place.Node] != best || place.Score != best || place.Feasible != len(scores) || place.Asked != len(c.nodes) {
		t.Errorf("seed %d, %s: %+v; the scores are %v", seed, pod.Name, place, scores)
	}
	undo := snap.Assume(sp, place.Node)
	if seed%3 == 0 { // a failed binding has no effect
		undo()
		return true
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName = place.Node
	if seed%3 == 1 {
		snap.Assign(bound)
	}
	c.pods = append(c.pods, bound)
	return true
}

func TestNoNodes(t *testing.T) {
	snap := snapshot.New()
	snap.SetNode(node("a", "1", "1Gi"))
	snap.RemoveNode("a")
	if _, err := scheduler.Schedule(snap, pod("p", "1")); !errors.Is(err, framework.ErrNoNodes) {
		t.Error(err)
	}
}

func node(name, cpu, memory string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "pods": resource.MustParse("110")}
	return n
}

func pod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}},
	}
}

func TestMessageNamesTheNodes(t *testing.T) {
	snap := snapshot.New()
	for _, name := range []string{"w1", "w2", "w3"} {
		snap.SetNode(node(name, "1", "1Gi"))
	}
	cp := node("cp", "8", "8Gi")
	cp.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	snap.SetNode(cp)
	_, err := scheduler.Schedule(snap, pod("p", "2"))
	var fit *framework.FitError
	if !errors.As(err, &fit) {
		t.Fatal(err)
	}
	const want = "0/4 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 3 Insufficient cpu." +
		" cp: node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }; w1, w2, w3: Insufficient cpu."
	if fit.Message() != want {
		t.Errorf("got  %s\nwant %s", fit.Message(), want)
	}
	for i := range 500 {
		snap.SetNode(node(fmt.Sprintf("node-with-a-long-name-%d", i), "1", "1Gi"))
	}
	_, err = scheduler.Schedule(snap, pod("p", "2"))
	if errors.As(err, &fit); len(fit.Message()) > 1000 {
		t.Errorf("%d bytes: %s", len(fit.Message()), fit.Message())
	} else {
		t.Log(fit.Message())
	}
}

func TestTieBreak(t *testing.T) {
	chosen := func(rnd *rand.Rand) map[string]int {
		counts := map[string]int{}
		a := scheduler.NewAlgorithm(rnd)
		snap := snapshot.New()
		for _, i := range rand.Perm(10) {
			snap.SetNode(node(fmt.Sprint("n", i), "1", "1Gi"))
		}
		for range 1000 {
			p, err := a.Schedule(snap, snapshot.NewPod(pod("p", "1")))
			if err != nil {
				t.Fatal(err)
			}
			counts[p.Node]++
		}
		return counts
	}
	if got := chosen(nil); got["n0"] != 1000 {
		t.Errorf("without chance the first name wins: %v", got)
	}
	for name, n := range chosen(rand.New(rand.NewPCG(1, 1))) {
		if n < 50 || n > 150 {
			t.Errorf("%s was chosen %d times of 1000, with 9 others like it", name, n)
		}
	}
}

func benchmarkCluster(nodes int) *snapshot.Snapshot {
	snap := snapshot.New()
	for i := range nodes {
		n := node(fmt.Sprint("n", i), "32", "128Gi")
		n.Labels = map[string]string{"zone": fmt.Sprint(i % 3)}
		if i%10 == 0 {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		}
		snap.SetNode(n)
	}
	return snap
}

// BenchmarkSchedule places 1,000 pods per iteration, of one shape or of distinct shapes.
func BenchmarkSchedule(b *testing.B) {
	for _, nodes := range []int{100, 5000} {
		for _, shapes := range []int{1, 1000} {
			b.Run(fmt.Sprintf("nodes=%d/shapes=%d", nodes, shapes), func(b *testing.B) {
				pods := make([]*corev1.Pod, 1000)
				for i := range pods {
					pods[i] = pod(fmt.Sprint("p", i), fmt.Sprintf("%dm", 10+i%shapes))
				}
				for b.Loop() {
					b.StopTimer()
					snap, a := benchmarkCluster(nodes), scheduler.NewAlgorithm(rand.New(rand.NewPCG(1, 1)))
					b.StartTimer()
					for _, p := range pods {
						sp := snapshot.NewPod(p)
						place, err := a.Schedule(snap, sp)
						if err != nil {
							b.Fatal(err)
						}
						snap.Assume(sp, place.Node)
					}
				}
				b.ReportMetric(float64(1000*b.N)/b.Elapsed().Seconds(), "pods/s")
			})
		}
	}
}

// BenchmarkScheduleAffinity is BenchmarkSchedule for pods that require a zone and tolerate a taint, of 100
// shapes.
func BenchmarkScheduleAffinity(b *testing.B) {
	snap, a := benchmarkCluster(5000), scheduler.NewAlgorithm(rand.New(rand.NewPCG(1, 1)))
	for i := 0; b.Loop(); i++ {
		p := pod(fmt.Sprint("p", i), fmt.Sprintf("%dm", 1+i%100))
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"0", "1"}}}}},
		}}}
		sp := snapshot.NewPod(p)
		place, err := a.Schedule(snap, sp)
		if err != nil {
			b.Fatal(err)
		}
		snap.Assume(sp, place.Node)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pods/s")
}
