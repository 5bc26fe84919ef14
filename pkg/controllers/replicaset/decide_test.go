package replicaset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controller/pods"
)

var (
	now       = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	webLabels = map[string]string{"app": "web"}
)

// pod returns a pod that has been ready on node n for an hour, with changes.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: webLabels, CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)}},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
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
func notReady(p *corev1.Pod)   { p.Status.Conditions = nil }
func failed(p *corev1.Pod)     { p.Status.Phase = corev1.PodFailed }
func leaving(p *corev1.Pod)    { p.DeletionTimestamp = &metav1.Time{Time: now} }
func relabelled(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }
func phase(ph corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = ph }
}
func node(n string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = n } }
func cost(c string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: c} }
}
func restarts(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
}
func born(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.Time{Time: now.Add(-ago)} }
}

func set(replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "rs", UID: "rs"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: webLabels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: webLabels}}},
	}
}

func names(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestDecide(t *testing.T) {
	deleted := set(3)
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	tests := map[string]struct {
		reason         string
		rs             *appsv1.ReplicaSet
		owned, orphans []*corev1.Pod
		want           string
	}{
		"Create":     {"what is missing is made", set(3), []*corev1.Pod{pod("a")}, nil, "create 2"},
		"Burst":      {"not all at once", set(2000), nil, nil, "create 500"},
		"EndedOnes":  {"pods that ended or are about to do not count", set(2), []*corev1.Pod{pod("a", failed), pod("b", leaving)}, nil, "create 2"},
		"Delete":     {"what is too much goes", set(1), []*corev1.Pod{pod("a"), pod("b", notReady)}, nil, "delete b"},
		"Adopt":      {"an orphan that matches counts", set(2), []*corev1.Pod{pod("a")}, []*corev1.Pod{pod("b")}, "adopt b"},
		"AdoptDead":  {"what has ended is not worth it", set(1), nil, []*corev1.Pod{pod("a", failed), pod("b", leaving)}, "create 1"},
		"AdoptOther": {"what does not match is somebody else's", set(1), nil, []*corev1.Pod{pod("a", relabelled)}, "create 1"},
		"AdoptTooMany": {"an orphan may be the one to go", set(1), []*corev1.Pod{pod("a")}, []*corev1.Pod{pod("b", notReady)},
			"adopt b, delete b"},
		"Release":      {"what matches no more is let go and replaced", set(1), []*corev1.Pod{pod("a", relabelled)}, nil, "release a, create 1"},
		"BeingDeleted": {"a set on its way out does nothing", deleted, []*corev1.Pod{pod("a"), pod("b", relabelled)}, []*corev1.Pod{pod("c")}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			selector, err := metav1.LabelSelectorAsSelector(tc.rs.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			p := decide(tc.rs, selector, tc.owned, tc.orphans, func() map[string]int { return nil }, now)
			var out []string
			for verb, list := range map[string][]*corev1.Pod{"adopt": p.Adopt, "release": p.Release, "delete": p.Delete} {
				if len(list) > 0 {
					out = append(out, verb+" "+names(list))
				}
			}
			slices.Sort(out)
			if p.Create > 0 {
				out = append(out, fmt.Sprintf("create %d", p.Create))
			}
			if got := strings.Join(out, ", "); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestRank checks each rule against all rules after it.
func TestRank(t *testing.T) {
	tests := map[string]struct {
		reason      string
		first, then *corev1.Pod
	}{
		"Unbound":     {"a pod without a node has done nothing yet", pod("z", node(""), cost("9")), pod("a", phase(corev1.PodPending), notReady)},
		"Pending":     {"pending before unknown", pod("z", phase(corev1.PodPending), cost("9")), pod("a", phase(corev1.PodUnknown))},
		"Unknown":     {"unknown before running", pod("z", phase(corev1.PodUnknown), cost("9")), pod("a", notReady)},
		"NotReady":    {"one that serves nobody is missed by nobody", pod("z", notReady, cost("9")), pod("a", cost("-9"))},
		"Cost":        {"the user says which one is worth less", pod("z", cost("-1"), ready(time.Hour)), pod("a", node("crowded"), ready(time.Second))},
		"BadCost":     {"a cost that is no number is 0", pod("z", cost("-1")), pod("a", cost("cheap"))},
		"Crowded":     {"spread stays", pod("z", node("crowded"), ready(time.Hour)), pod("a", ready(time.Second))},
		"ReadyLately": {"what has been ready for longer is better proven", pod("z", ready(time.Second)), pod("a", restarts(9))},
		"Restarts":    {"what crashes goes", pod("z", restarts(2)), pod("a", restarts(1), born(time.Second))},
		"Young":       {"the younger one goes", pod("z", born(time.Minute)), pod("a")},
		"Magnitude":   {"about the same age is the same age: the uid decides", pod("a", born(62*time.Minute)), pod("z", born(61*time.Minute))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := pods.LeastUseful([]*corev1.Pod{tc.then, tc.first}, 1, map[string]int{"n": 1, "crowded": 2}, now)
			if got[0] != tc.first {
				t.Error(tc.reason)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	rs := set(5)
	rs.Generation = 7
	rs.Spec.MinReadySeconds = 10
	rs.Spec.Template.Labels = map[string]string{"app": "web", "tier": "x"}
	full := func(p *corev1.Pod) { p.Labels = rs.Spec.Template.Labels }
	s, recount := status(rs, []*corev1.Pod{
		pod("a", full), pod("b", ready(4*time.Second)), pod("c", ready(7*time.Second)), pod("d", notReady), pod("e", leaving), pod("f", failed),
	}, &failure{"FailedCreate", "quota"}, now)
	got := fmt.Sprintf("%d replicas, %d labelled, %d ready, %d available, %d terminating, observed %d, again in %s, %s %s %s",
		s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, *s.TerminatingReplicas, s.ObservedGeneration, recount,
		s.Conditions[0].Type, s.Conditions[0].Reason, s.Conditions[0].Message)
	if want := "4 replicas, 1 labelled, 3 ready, 1 available, 1 terminating, observed 7, again in 3s, ReplicaFailure FailedCreate quota"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	rs.Status = s
	if s, _ = status(rs, nil, nil, now); len(s.Conditions) != 0 {
		t.Errorf("the failure is over: %v", s.Conditions)
	}
}
