package scheduler_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// priorities is a cluster with pods of several priorities, budgets and nominations.
type priorities struct {
	cluster
	budgets map[string]*policyv1.PodDisruptionBudget
	nominee map[string]*corev1.Pod // by node; at most one each
}

// eviction is what preemption does on one node, as the reference sees it.
type eviction struct {
	victims    []string
	violations int
	highest    int32
	sum        int64
	started    int64
}

func (a eviction) compare(b eviction) int {
	return cmp.Or(cmp.Compare(a.violations, b.violations), cmp.Compare(a.highest, b.highest), cmp.Compare(a.sum, b.sum),
		cmp.Compare(len(a.victims), len(b.victims)), cmp.Compare(b.started, a.started))
}

// fitsBeside reports whether the pod fits on a node that has these pods, with and without the
// pod that the node is nominated for.
func (p *priorities) fitsBeside(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) bool {
	with := others
	if n := p.nominee[node.Name]; n != nil && n.UID != pod.UID && *n.Spec.Priority >= *pod.Spec.Priority {
		there := n.DeepCopy()
		there.Spec.NodeName = node.Name
		with = append(slices.Clone(others), there)
	}
	for _, pods := range [][]*corev1.Pod{others, with} {
		if c := (&cluster{nodes: p.nodes, pods: pods}); c.obviousReasons(pod, node) != nil {
			return false
		}
	}
	return true
}

func importance(a, b *corev1.Pod) int {
	return cmp.Or(-cmp.Compare(*a.Spec.Priority, *b.Spec.Priority), a.Status.StartTime.Compare(b.Status.StartTime.Time), cmp.Compare(a.UID, b.UID))
}

// preempted reports whether a pod terminates because it was evicted for another one.
func preempted(o *corev1.Pod) bool { return o.DeletionTimestamp != nil && len(o.Status.Conditions) > 0 }

// violating returns the pods whose eviction one after the other exceeds a budget.
func (p *priorities) violating(pods []*corev1.Pod) map[*corev1.Pod]bool {
	out, used := map[*corev1.Pod]bool{}, map[string]int32{}
	for _, pod := range pods {
		for name, b := range p.budgets {
			selector, _ := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			_, disrupted := b.Status.DisruptedPods[pod.Name]
			if !selector.Matches(labels.Set(pod.Labels)) || disrupted {
				continue
			}
			used[name]++
			out[pod] = out[pod] || used[name] > b.Status.DisruptionsAllowed
		}
	}
	return out
}

// evictions returns nil if evicting pods of lower priority from the node does not help.
func (p *priorities) evictions(pod *corev1.Pod, node *corev1.Node) *eviction {
	var kept, lower []*corev1.Pod
	helps := false
	for _, o := range p.on(node) {
		switch {
		case *o.Spec.Priority >= *pod.Spec.Priority:
			kept = append(kept, o)
		case !preempted(o):
			lower = append(lower, o)
			helps = true
		default:
			helps = true
		}
	}
	if !helps || !p.fitsBeside(pod, node, kept) {
		return nil
	}
	slices.SortFunc(lower, importance)
	violates := p.violating(lower)
	out := &eviction{highest: math.MinInt32, started: math.MaxInt64}
	var victims []*corev1.Pod
	for _, first := range []bool{true, false} {
		for _, o := range lower {
			if violates[o] != first {
				continue
			}
			if p.fitsBeside(pod, node, append(slices.Clone(kept), o)) {
				kept = append(kept, o)
				continue
			}
			victims = append(victims, o)
			if first {
				out.violations++
			}
		}
	}
	slices.SortFunc(victims, importance)
	for i, v := range victims {
		if i == 0 {
			out.highest, out.started = *v.Spec.Priority, v.Status.StartTime.UnixNano()
		}
		out.victims = append(out.victims, v.Name)
		out.sum += int64(*v.Spec.Priority) + math.MaxInt32 + 1
	}
	return out
}

func randomBudget(r *rand.Rand, name string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	b.Spec.Selector = pick(r, &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(r, "x", "y")}}, &metav1.LabelSelector{}, nil)
	b.Status.DisruptionsAllowed = int32(r.IntN(3))
	if oneIn(r, 3) {
		b.Status.DisruptedPods = map[string]metav1.Time{fmt.Sprint("p", r.IntN(60)): {}}
	}
	return b
}

func (p *priorities) change(r *rand.Rand, snap *snapshot.Snapshot, step int) {
	switch {
	case len(p.nodes) < 4:
		n := randomNode(r, fmt.Sprint("n", r.IntN(8)))
		n.Spec.Taints, n.Spec.Unschedulable = n.Spec.Taints[:min(1, len(n.Spec.Taints))], false
		p.setNode(snap, n)
	case oneIn(r, 6):
		b := randomBudget(r, pick(r, "b0", "b1"))
		p.budgets[b.Name] = b
		snap.SetBudget(b)
	case oneIn(r, 8):
		for name := range p.budgets {
			delete(p.budgets, name)
			snap.RemoveBudget("ns", name)
		}
	case oneIn(r, 5):
		n := pick(r, p.nodes...).Name
		if p.nominee[n] != nil {
			snap.Unnominate(p.nominee[n].UID)
		}
		p.nominee[n] = randomVictim(r, fmt.Sprint("nominee", step))
		snap.Nominate(snapshot.NewPod(p.nominee[n]), n)
	default:
		o := randomVictim(r, fmt.Sprint("p", step))
		o.Spec.NodeName = pick(r, p.nodes...).Name
		if oneIn(r, 6) {
			o.DeletionTimestamp = &metav1.Time{}
			if oneIn(r, 2) {
				o.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
			}
		}
		p.pods = append(p.pods, o)
		snap.Assign(o)
	}
}

func randomVictim(r *rand.Rand, name string) *corev1.Pod {
	o := randomPod(r, name)
	o.Spec.InitContainers, o.Spec.Affinity = nil, nil
	o.Labels = map[string]string{"app": pick(r, "x", "y", "z")}
	o.Spec.Priority = pick(r, new(int32(-5)), new(int32(0)), new(int32(3)), new(int32(1000)))
	o.Status.StartTime = &metav1.Time{Time: time.Unix(int64(r.IntN(4)), 0)}
	return o
}

// TestVictimsAgreeWithReference compares the nominations for random pods on random clusters with
// the reference. Then it removes the victims: the pod must fit on its node.
func TestVictimsAgreeWithReference(t *testing.T) {
	asked, nominated, evicted := 0, 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 11))
		p := &priorities{budgets: map[string]*policyv1.PodDisruptionBudget{}, nominee: map[string]*corev1.Pod{}}
		snap, algorithm := snapshot.New(), scheduler.NewAlgorithm(nil)
		templates := []*corev1.Pod{randomVictim(r, "t0"), randomVictim(r, "t1"), randomVictim(r, "t2")}
		for step := range 60 {
			p.change(r, snap, step)
			pod := snapshot.NewPod(pick(r, templates...))
			_, err := algorithm.Schedule(snap, pod)
			var fit *framework.FitError
			if !errors.As(err, &fit) {
				continue
			}
			asked++
			got := algorithm.PostFilter(snap, pod, fit)
			p.compare(t, seed, pod.Pod, got)
			if t.Failed() {
				return
			}
			if got.Node == "" {
				continue
			}
			nominated++
			evicted += len(got.Victims)
			p.carryOut(t, r, snap, algorithm, pod, got)
		}
	}
	if nominated < 500 || asked-nominated < 500 || evicted < 500 {
		t.Errorf("%d pods did not fit, for %d a node was nominated, %d victims: too few", asked, nominated, evicted)
	}
}

func (p *priorities) compare(t *testing.T, seed uint64, pod *corev1.Pod, got framework.Nomination) {
	t.Helper()
	want := map[string]*eviction{}
	var best *eviction
	for _, n := range p.nodes {
		if e := p.evictions(pod, n); e != nil {
			want[n.Name] = e
			if best == nil || e.compare(*best) < 0 {
				best = e
			}
		}
	}
	if best == nil {
		if got.Node != "" || !got.Void || got.Message == "" {
			t.Errorf("seed %d: got %+v, but preemption helps nowhere", seed, got)
		}
		return
	}
	e := want[got.Node]
	var victims []string
	for _, v := range got.Victims {
		victims = append(victims, v.Name)
	}
	if e == nil || e.compare(*best) != 0 || !slices.Equal(victims, e.victims) {
		t.Errorf("seed %d: got %s, victims %v; want %+v of %d nodes", seed, got.Node, victims, best, len(want))
	}
}

// carryOut nominates the node, removes the victims and the pods that terminate, and schedules
// the pod.
func (p *priorities) carryOut(t *testing.T, r *rand.Rand, snap *snapshot.Snapshot, algorithm *framework.Scheduler, pod *snapshot.Pod, n framework.Nomination) {
	t.Helper()
	snap.Nominate(pod, n.Node)
	evicted := false
	for _, v := range n.Victims {
		if v.DeletionTimestamp == nil {
			snap.Evict(v.UID)
			evicted = true
		}
	}
	_, err := algorithm.Schedule(snap, pod)
	var fit *framework.FitError
	if evicted && errors.As(err, &fit) {
		if again := algorithm.PostFilter(snap, pod, fit); again.Node != "" || again.Void || again.Message != "preemption: not eligible due to a terminating pod on the nominated node." {
			t.Errorf("while the victims terminate: %+v", again)
		}
	}
	p.pods = slices.DeleteFunc(p.pods, func(o *corev1.Pod) bool {
		victim := slices.ContainsFunc(n.Victims, func(v *snapshot.Pod) bool { return v.UID == o.UID })
		going := victim || o.DeletionTimestamp != nil && o.Spec.NodeName == n.Node && *o.Spec.Priority < pod.Priority()
		if going {
			snap.Remove(o.UID)
		}
		return going
	})
	place, err := algorithm.Schedule(snap, pod)
	if err != nil || place.Node != n.Node {
		t.Errorf("%v victims in vain: %+v, %v", len(n.Victims), place, err)
		return
	}
	snap.Unnominate(pod.UID)
	if oneIn(r, 2) {
		bound := pod.DeepCopy()
		bound.Name = fmt.Sprint(pod.Name, "-bound-", r.Uint64())
		bound.Spec.NodeName, bound.UID = place.Node, types.UID(bound.Name)
		p.pods = append(p.pods, bound)
		snap.Assign(bound)
	}
}
