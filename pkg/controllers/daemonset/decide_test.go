package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// node returns a node, or with taints of these effects.
func node(name string, effects ...corev1.TaintEffect) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	for _, e := range effects {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "k", Effect: e})
	}
	return n
}

// pod returns a pod, named after its node and version, that has been ready for an hour.
func pod(on, version string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: on + "-" + version, Labels: map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: version},
			CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)},
		},
		Spec:   corev1.PodSpec{NodeName: on},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	ready(time.Hour)(p)
	for _, f := range change {
		f(p)
	}
	return p
}

func ready(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: now.Add(-since)}}}
	}
}
func unready(p *corev1.Pod)   { p.Status.Conditions = nil }
func failed(p *corev1.Pod)    { p.Status.Phase = corev1.PodFailed }
func succeeded(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
func leaving(p *corev1.Pod)   { p.DeletionTimestamp = &metav1.Time{Time: now} }
func named(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Name = name }
}

// waiting makes the pod wait for the scheduler.
func waiting(p *corev1.Pod) {
	bound := p.Spec.NodeName
	p.Spec.NodeName = ""
	p.Spec = onNode(p, bound).Spec
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
}

func set(strategy appsv1.DaemonSetUpdateStrategy) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: strategy, MinReadySeconds: 10}}
}

func rolling(surge, unavailable string) appsv1.DaemonSetUpdateStrategy {
	s, u := intstr.Parse(surge), intstr.Parse(unavailable)
	return appsv1.DaemonSetUpdateStrategy{
		Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &s, MaxUnavailable: &u},
	}
}

var onDelete = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}

func (p plan) String() string {
	var out []string
	if len(p.Create) > 0 {
		out = append(out, "create on "+strings.Join(p.Create, " "))
	}
	for what, list := range map[string][]*corev1.Pod{"delete": p.Delete, "end": p.Ended} {
		var names []string
		for _, pod := range list {
			names = append(names, pod.Name)
		}
		if len(names) > 0 {
			out = append(out, what+" "+strings.Join(names, " "))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	const noSchedule, noExecute = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	three := []*corev1.Node{node("a"), node("b"), node("c")}
	type pods = []*corev1.Pod
	for name, row := range map[string]struct {
		reason   string
		strategy appsv1.DaemonSetUpdateStrategy
		nodes    []*corev1.Node
		have     pods
		want     string
		recheck  time.Duration
	}{
		"Missing":         {"each node without a pod gets one", onDelete, three, pods{pod("b", "new")}, "create on a c", 0},
		"Waiting":         {"a pod that is not bound yet counts for its node", onDelete, three[:1], pods{pod("a", "new", waiting)}, "", 0},
		"Leaving":         {"the new pod waits until the old one is gone", onDelete, three[:1], pods{pod("a", "new", leaving)}, "", 0},
		"LeavingFailed":   {"only its finalizers keep the pod", onDelete, three[:1], pods{pod("a", "new", leaving, failed)}, "create on a", 0},
		"Failed":          {"it is deleted, and replaced later", onDelete, three[:1], pods{pod("a", "new", failed)}, "end a-new", 0},
		"Held":            {"it has failed a moment ago", onDelete, []*corev1.Node{node("held")}, pods{pod("held", "new", failed)}, "", time.Minute},
		"Succeeded":       {"daemons do not end", onDelete, []*corev1.Node{node("held")}, pods{pod("held", "new", succeeded)}, "end held-new", 0},
		"TwoPods":         {"the older one stays", onDelete, three[:1], pods{pod("a", "new", named("x")), pod("a", "new", named("y"))}, "delete y", 0},
		"TwoWaiting":      {"the one that is bound stays", onDelete, three[:1], pods{pod("a", "new", named("x"), waiting), pod("a", "new", named("y"))}, "delete x", 0},
		"NodeIsGone":      {"it would wait forever; bound ones are the pod garbage collector's", onDelete, nil, pods{pod("x", "new", waiting), pod("y", "new")}, "delete x-new", 0},
		"Tainted":         {"NoSchedule keeps new pods away", onDelete, []*corev1.Node{node("a", noSchedule), node("b", noSchedule)}, pods{pod("a", "new")}, "", 0},
		"TaintedToEvict":  {"NoExecute removes pods", onDelete, []*corev1.Node{node("a", noExecute)}, pods{pod("a", "new"), pod("a", "new", named("x"), leaving)}, "delete a-new", 0},
		"OnDelete":        {"old pods stay", onDelete, three, pods{pod("a", "old"), pod("b", "old"), pod("c", "new")}, "", 0},
		"OneAtATime":      {"the first of the old ones goes", rolling("0", "1"), three, pods{pod("a", "old"), pod("b", "old"), pod("c", "new")}, "delete a-old", 0},
		"OneIsDown":       {"it is the one that may be", rolling("0", "1"), three, pods{pod("a", "old"), pod("b", "old"), pod("c", "new", unready)}, "", 0},
		"NotYetAvailable": {"it has been ready for 4 of 10 seconds", rolling("0", "1"), three, pods{pod("a", "old"), pod("b", "old"), pod("c", "new", ready(4*time.Second))}, "", 6 * time.Second},
		"OldIsDown":       {"it costs nothing to replace it", rolling("0", "1"), three, pods{pod("a", "old"), pod("b", "old", unready), pod("c", "old", unready)}, "delete b-old c-old", 0},
		"Percent":         {"half of three, rounded up", rolling("0", "50%"), three, pods{pod("a", "old"), pod("b", "old"), pod("c", "old")}, "delete a-old b-old", 0},
		"FirstComplete":   {"an update waits until each node has a pod", rolling("0", "1"), three, pods{pod("a", "old"), pod("b", "old")}, "create on c", 0},
		"Surge":           {"a new pod comes first", rolling("1", "0"), three, pods{pod("a", "old"), pod("b", "old"), pod("c", "new")}, "create on a", 0},
		"Surging":         {"only one node at a time has two", rolling("1", "0"), three, pods{pod("a", "old"), pod("a", "new", unready), pod("b", "old"), pod("c", "new")}, "", 0},
		"Surged":          {"the new pod is available", rolling("1", "0"), three[:1], pods{pod("a", "old"), pod("a", "new")}, "delete a-old", 0},
		"SurgedTooEarly":  {"the new pod is not available yet", rolling("1", "0"), three[:1], pods{pod("a", "old"), pod("a", "new", ready(time.Second))}, "", 9 * time.Second},
		"SurgedOnDown":    {"the old pod is of no use", rolling("1", "0"), three[:1], pods{pod("a", "old", unready), pod("a", "new", unready)}, "delete a-old", 0},
		"SurgeBesideDown": {"pods that are down do not count", rolling("1", "0"), three, pods{pod("a", "old"), pod("b", "old", unready), pod("c", "old", unready)}, "create on b c a", 0},
		"SurgeSurplus":    {"one of each version stays", rolling("1", "0"), three[:1], pods{pod("a", "old"), pod("a", "old", named("x")), pod("a", "new", unready), pod("a", "new", named("y"), unready)}, "delete x y", 0},
		"SurgeMisplaced":  {"as many pods as are desired are available elsewhere", rolling("1", "0"), []*corev1.Node{node("a", noSchedule), node("b")}, pods{pod("a", "old"), pod("b", "new")}, "delete a-old", 0},
		"SurgeMisplaced2": {"the pod elsewhere is not available", rolling("1", "0"), []*corev1.Node{node("a", noSchedule), node("b")}, pods{pod("a", "old"), pod("b", "new", unready)}, "", 0},
		"MisplacedDown":   {"nothing is lost", rolling("1", "0"), []*corev1.Node{node("a", noSchedule)}, pods{pod("a", "old", unready)}, "delete a-old", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(set(row.strategy), "new", row.nodes, row.have, now)
			got := s.decide(func(node string) time.Duration {
				if node == "held" {
					return time.Minute
				}
				return 0
			})
			if got.String() != row.want || s.recheck != row.recheck {
				t.Errorf("%s: got %q, again after %s; want %q, %s", row.reason, got, s.recheck, row.want, row.recheck)
			}
		})
	}
}

func TestDecideInBursts(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 2 * burst {
		nodes = append(nodes, node(fmt.Sprint(i)))
	}
	if p := newState(set(onDelete), "new", nodes, nil, now).decide(nil); len(p.Create) != burst {
		t.Errorf("%d pods are created at once", len(p.Create))
	}
}

func TestStatus(t *testing.T) {
	ds := set(rolling("0", "1"))
	ds.Generation = 7
	ds.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "3"}
	nodes := []*corev1.Node{node("a"), node("b"), node("c"), node("d"), node("e", corev1.TaintEffectNoSchedule)}
	byGeneration := func(p *corev1.Pod) { p.Labels[generationLabel] = "3" }
	got := newState(ds, "new", nodes, []*corev1.Pod{
		pod("a", "new"), pod("a", "old", named("younger")), pod("b", "lost", byGeneration, ready(time.Second)), pod("c", "old", unready), pod("e", "old"),
	}, now).status()
	want := appsv1.DaemonSetStatus{
		DesiredNumberScheduled: 4, CurrentNumberScheduled: 3, NumberMisscheduled: 1, NumberReady: 2, NumberAvailable: 1,
		NumberUnavailable: 3, UpdatedNumberScheduled: 2, ObservedGeneration: 7,
	}
	if got.String() != want.String() {
		t.Errorf("got  %s\nwant %s", &got, &want)
	}
}

func TestEligibility(t *testing.T) {
	plain, labelled := node("plain"), node("labelled")
	labelled.Labels["disk"] = "ssd"
	problems := node("problems")
	for _, key := range []string{corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable} {
		problems.Spec.Taints = append(problems.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		problems.Spec.Taints = append(problems.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	offline := node("offline")
	offline.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule}}
	tainted := node("tainted", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	all := []*corev1.Node{plain, labelled, problems, offline, tainted}
	for name, row := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"Any":          {corev1.PodSpec{}, "plain labelled problems"},
		"NodeName":     {corev1.PodSpec{NodeName: "labelled"}, "labelled"},
		"NodeSelector": {corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, "labelled"},
		"HostNetwork":  {corev1.PodSpec{HostNetwork: true}, "plain labelled problems offline"},
		"Tolerant":     {corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}}, "plain labelled problems tainted"},
		"Affinity":     {onNode(&corev1.Pod{}, "plain").Spec, "plain"},
	} {
		ds := &appsv1.DaemonSet{}
		ds.Spec.Template.Spec = row.spec
		var got []string
		for _, n := range all {
			if run, keep := eligibilityOf(ds).on(n); run && keep {
				got = append(got, n.Name)
			}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: on %v, want %s", name, got, row.want)
		}
	}
}

// The tolerations of the template are kept, but for those that all daemon pods have.
func TestTolerations(t *testing.T) {
	limit := int64(60)
	got := tolerationsOf(&corev1.PodSpec{Tolerations: []corev1.Toleration{
		{Key: "mine"},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &limit},
	}})
	if len(got) != 7 || got[0].Key != "mine" || slices.ContainsFunc(got, func(t corev1.Toleration) bool { return t.TolerationSeconds != nil }) {
		t.Errorf("%+v", got)
	}
}

func TestFailuresAreSpaced(t *testing.T) {
	f, ds := newFailures(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds", Generation: 1}}
	at := now
	var got []time.Duration
	for range 12 {
		f.deleted(ds, "n", at)
		got = append(got, f.held(ds, "n", at))
		at = at.Add(got[len(got)-1])
	}
	if got[0] != time.Second || got[1] != 2*time.Second || got[11] != maxDelay || f.held(ds, "other", at) != 0 {
		t.Errorf("the delays are %v", got)
	}
	next := ds.DeepCopy()
	next.Generation = 2
	if f.held(next, "n", at.Add(-time.Second)) != 0 {
		t.Error("another template has the delay of the last")
	}
	f.deleted(next, "n", at)
	f.deleted(next, "n", at.Add(time.Hour))
	if d := f.held(next, "n", at.Add(time.Hour)); d != time.Second {
		t.Errorf("after an hour the delay is %s", d)
	}
}
