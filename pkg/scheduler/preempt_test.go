package scheduler_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/conditions"
	"podium/pkg/scheduler"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

func important(name, cpu string, priority int32) *corev1.Pod {
	p := pod(name, cpu)
	p.Spec.Priority = &priority
	return p
}

// TestPreemptedPodTerminatesInPeace runs preemption against the real API server: the victim gets
// its condition and its grace period, and the pod takes its place afterwards.
func TestPreemptedPodTerminatesInPeace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, registry := realWorld(t), prometheus.NewRegistry()
		pods := client.For[*corev1.Pod](c).In("default")
		if _, err := client.For[*schedulingv1.PriorityClass](c).Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}); err != nil {
			t.Fatal(err)
		}
		addNode(t, c, node("a", "2", "4Gi"))
		stop := run(t, scheduler.Config{Client: c, Registry: registry})
		create := func(name, class string) {
			t.Helper()
			p := realPod(name, "1")
			p.Spec.PriorityClassName = class
			if _, err := pods.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		get := func(name string) *corev1.Pod {
			t.Helper()
			p, err := pods.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		create("low1", "")
		create("low2", "")
		create("vip", "high")
		create("low3", "")
		vip, victims := get("vip"), []string{}
		if vip.Spec.NodeName != "" || vip.Status.NominatedNodeName != "a" {
			t.Errorf("on %q, nominated %q", vip.Spec.NodeName, vip.Status.NominatedNodeName)
		}
		for _, name := range []string{"low1", "low2", "low3"} {
			p := get(name)
			cond := conditions.Find(p.Status.Conditions, corev1.DisruptionTarget)
			if p.DeletionTimestamp == nil && cond == nil {
				continue
			}
			victims = append(victims, name)
			if cond == nil || cond.Status != "True" || cond.Reason != "PreemptionByScheduler" ||
				cond.Message != "default-scheduler: preempting to accommodate a higher priority pod" || *p.DeletionGracePeriodSeconds != 30 {
				t.Errorf("%s: %+v", name, p.Status.Conditions)
			}
		}
		if len(victims) != 1 {
			t.Fatalf("victims: %v", victims)
		}
		time.Sleep(10 * time.Minute) // the victim may take its time: no other pod suffers for it
		zero := int64(0)
		if err := pods.Delete(t.Context(), victims[0], metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if vip, low3 := get("vip"), get("low3"); vip.Spec.NodeName != "a" || low3.Spec.NodeName != "" {
			t.Errorf("vip is on %q, low3, which is of lower priority, on %q", vip.Spec.NodeName, low3.Spec.NodeName)
		}
		list, err := client.For[*corev1.Event](c).In("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Preempted"})
		if err != nil || len(list.Items) != 1 || list.Items[0].Message != fmt.Sprintf("Preempted by pod %s on node a", vip.UID) || list.Items[0].InvolvedObject.Name != victims[0] {
			t.Errorf("events: %+v, %v", list, err)
		}
		families, _ := registry.Gather()
		for _, f := range families {
			if f.GetName() == "scheduler_preemption_victims" && f.Metric[0].Histogram.GetSampleSum() != 1 {
				t.Errorf("%v", f)
			}
		}
		stop()
	})
}

// preemption is a story of one node of 2 CPUs with two pods of priority 0.
func preemption(t *testing.T, prepare func(*world), vip *corev1.Pod, check func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		prepare(w)
		w.node(node("a", "2", "4Gi"))
		stop := w.start(scheduler.Config{})
		w.create(important("low1", "1", 0))
		w.create(important("low2", "1", 0))
		settle()
		w.create(vip)
		settle()
		check(w)
		stop()
	})
}

func TestPreemption(t *testing.T) {
	never := important("vip", "1", 10)
	never.Spec.PreemptionPolicy = new(corev1.PreemptNever)
	for name, test := range map[string]struct {
		reason string
		vip    *corev1.Pod
		want   string // where pods are, and what the vip's condition says
	}{
		"One":      {"one victim is enough", important("vip", "1", 10), "low1:a vip:a, True"},
		"All":      {"a large pod evicts both", important("vip", "2", 10), "vip:a, True"},
		"Equal":    {"pods of the same priority stay", important("vip", "1", 0), "low1:a low2:a vip:, 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod. a: Insufficient cpu."},
		"TooLarge": {"nobody is evicted for a pod that still would not fit", important("vip", "3", 10), "low1:a low2:a vip:, 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling. a: Insufficient cpu."},
		"Never":    {"preemptionPolicy", never, "low1:a low2:a vip:, 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never. a: Insufficient cpu."},
	} {
		t.Run(name, func(t *testing.T) {
			preemption(t, func(*world) {}, test.vip, func(w *world) {
				said := "True"
				if c := conditions.Find(w.get("vip").Status.Conditions, corev1.PodScheduled); c != nil && w.get("vip").Spec.NodeName == "" {
					said = c.Message
				}
				if diff := cmp.Diff(test.want, w.where()+", "+said); diff != "" {
					t.Errorf("%s: %s", test.reason, diff)
				}
			})
		})
	}
}

// TestVictimThatCannotBeDeletedStays refuses the deletion of the victim three times: the pod
// loses its nomination, and gets the node later.
func TestVictimThatCannotBeDeletedStays(t *testing.T) {
	refusals := 3
	prepare := func(w *world) {
		w.api.Before = func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete && refusals > 0 {
				refusals--
				return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody}, nil
			}
			return nil, nil
		}
	}
	preemption(t, prepare, important("vip", "1", 10), func(w *world) {
		time.Sleep(2 * time.Minute)
		if w.get("vip").Spec.NodeName != "a" || len(strings.Fields(w.where())) != 2 || refusals != 0 {
			t.Errorf("%s; %d refusals left", w.where(), refusals)
		}
	})
}

// TestLostResponsesOfAnEviction drops the response of each write of the eviction once.
func TestLostResponsesOfAnEviction(t *testing.T) {
	lost := map[string]bool{}
	prepare := func(w *world) {
		w.api.After = func(r *http.Request) error {
			eviction := r.Method == http.MethodDelete || r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/low")
			if eviction && !lost[r.Method] {
				lost[r.Method] = true
				return errors.New("connection reset")
			}
			return nil
		}
	}
	preemption(t, prepare, important("vip", "1", 10), func(w *world) {
		if w.get("vip").Spec.NodeName != "a" || len(strings.Fields(w.where())) != 2 || len(lost) != 2 {
			t.Errorf("%s; lost: %v", w.where(), lost)
		}
	})
}

// TestBudgetProtectsPods has two nodes; a PodDisruptionBudget makes the scheduler evict the more
// important pod.
func TestBudgetProtectsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "1", "4Gi"))
		stop := w.start(scheduler.Config{})
		protected := important("protected", "1", 0)
		protected.Labels = map[string]string{"app": "db"}
		w.create(protected)
		settle()
		w.node(node("b", "1", "4Gi"))
		settle()
		w.create(important("other", "1", 5))
		settle()
		budgets := client.For[*policyv1.PodDisruptionBudget](w.api.Client(t)).In("ns")
		if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: protected.Labels}}}); err != nil {
			t.Fatal(err)
		}
		settle()
		w.create(important("vip", "1", 10))
		settle()
		if got := w.where(); got != "protected:a vip:b" {
			t.Error(got)
		}
		stop()
	})
}

// TestNewLeaderKeepsNominations starts a second scheduler while the victims terminate: it reads
// the nomination from the status and evicts nobody else.
func TestNewLeaderKeepsNominations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "1", "4Gi"))
		held := important("low", "1", 0)
		held.Finalizers = []string{"example.com/hold"}
		stop := w.start(scheduler.Config{})
		w.create(held)
		settle()
		w.create(important("vip", "1", 10))
		settle()
		stop()
		w.node(node("b", "1", "4Gi"))
		w.create(important("other", "1", 5)) // goes to b, where the vip would fit, too: it is tried first
		stop = w.start(scheduler.Config{})
		settle()
		list, err := w.pods.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			p.Finalizers = nil
			if _, err := w.pods.Update(t.Context(), p); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
		settle()
		if got := w.where(); !slices.Contains([]string{"other:a vip:b", "other:b vip:a"}, got) {
			t.Error(got)
		}
		stop()
	})
}

// TestNominatedNodeIsReserved has a nominated pod of priority 5: only pods of higher priority
// take its room.
func TestNominatedNodeIsReserved(t *testing.T) {
	for name, test := range map[string]struct {
		priority int32
		want     string
	}{
		"Lower": {4, "0/1 nodes are available: 1 Insufficient cpu."}, "Equal": {5, "0/1 nodes are available: 1 Insufficient cpu."}, "Higher": {6, ""},
	} {
		t.Run(name, func(t *testing.T) {
			snap := snapshot.New()
			snap.SetNode(node("a", "1", "4Gi"))
			snap.Nominate(snapshot.NewPod(important("nominee", "1", 5)), "a")
			got := ""
			if _, err := scheduler.Schedule(snap, important("p", "1", test.priority)); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if place, err := scheduler.Schedule(snap, important("nominee", "1", 5)); err != nil || place.Node != "a" {
				t.Errorf("the nominee: %+v, %v", place, err)
			}
		})
	}
}

// fullCluster fills nodes with 30 pods each.
func fullCluster(nodes int) *snapshot.Snapshot {
	snap := snapshot.New()
	r := rand.New(rand.NewPCG(1, 1))
	for i := range nodes {
		n := node(fmt.Sprint("n", i), "30", "128Gi")
		snap.SetNode(n)
		for j := range 30 {
			p := important(fmt.Sprint("p", i, "-", j), "1", int32(r.IntN(10)))
			p.Spec.NodeName = n.Name
			p.Status.StartTime = &metav1.Time{Time: time.Unix(int64(r.IntN(1000)), 0)}
			snap.Assign(p)
		}
	}
	return snap
}

// BenchmarkPreemption schedules 1,000 pods of high priority on 5,000 full nodes: it finds the
// victims, evicts them and binds the pod.
func BenchmarkPreemption(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		snap, a := fullCluster(5000), scheduler.NewAlgorithm(rand.New(rand.NewPCG(1, 1)))
		b.StartTimer()
		for i := range 1000 {
			p := snapshot.NewPod(important(fmt.Sprint("vip", i), "4", 100))
			_, err := a.Schedule(snap, p)
			var fit *framework.FitError
			if !errors.As(err, &fit) {
				b.Fatal(err)
			}
			n := a.PostFilter(snap, p, fit)
			if len(n.Victims) != 4 {
				b.Fatalf("%+v", n)
			}
			snap.Nominate(p, n.Node)
			for _, v := range n.Victims {
				snap.Evict(v.UID)
			}
			for _, v := range n.Victims {
				snap.Remove(v.UID)
			}
			place, err := a.Schedule(snap, p)
			if err != nil || place.Node != n.Node {
				b.Fatalf("%+v, %v", place, err)
			}
			snap.Unnominate(p.UID)
			snap.Assume(p, place.Node)
		}
	}
	b.ReportMetric(float64(1000*b.N)/b.Elapsed().Seconds(), "pods/s")
}
