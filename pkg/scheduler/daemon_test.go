package scheduler_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/daemon"
	"podium/pkg/scheduler"
)

// world is an API and a scheduler in a bubble.
type world struct {
	t     *testing.T
	api   *clienttest.Server
	pods  client.Resource[*corev1.Pod]
	nodes client.Resource[*corev1.Node]
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, api: clienttest.New()}
	c := w.api.Client(t)
	w.pods, w.nodes = client.For[*corev1.Pod](c).In("ns"), client.For[*corev1.Node](c)
	return w
}

// start starts a scheduler; stop ends it and waits for it.
func (w *world) start(cfg scheduler.Config) (stop func()) {
	cfg.Client = w.api.Client(w.t)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- scheduler.Run(ctx, cfg) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

func (w *world) node(n *corev1.Node) {
	w.t.Helper()
	if _, err := w.nodes.Create(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(p *corev1.Pod) {
	w.t.Helper()
	if _, err := w.pods.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(name string) *corev1.Pod {
	w.t.Helper()
	p, err := w.pods.Get(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// where returns each pod's node.
func (w *world) where() string {
	list, err := w.pods.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, p := range list.Items {
		out = append(out, p.Name+":"+p.Spec.NodeName)
	}
	return strings.Join(out, " ")
}

func (w *world) events() []string {
	list, err := client.For[*corev1.Event](w.api.Client(w.t)).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		times := int32(1)
		if e.Series != nil {
			times = e.Series.Count
		}
		if e.EventTime.IsZero() || e.Action == "" || !e.LastTimestamp.IsZero() {
			w.t.Errorf("event %s has times %v, %v and action %q: kubectl would not show it first", e.Reason, e.EventTime, e.LastTimestamp, e.Action)
		}
		out = append(out, fmt.Sprintf("%s %s %s x%d: %s", e.InvolvedObject.Name, e.Type, e.Reason, times, e.Message))
	}
	return out
}

func (w *world) count(request string) int {
	n := 0
	for _, r := range w.api.Writes() {
		if strings.Contains(r, request) {
			n++
		}
	}
	return n
}

func settle() { time.Sleep(30 * time.Second) }

func TestPodsFindNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "2", "4Gi"))
		w.node(node("b", "2", "4Gi"))
		w.create(pod("early", "1"))
		stop := w.start(scheduler.Config{})
		settle()
		w.create(pod("late", "1"))
		other := pod("other", "1")
		other.Spec.SchedulerName = "somebody-else"
		w.create(other)
		gated := pod("gated", "1")
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
		w.create(gated)
		settle()
		if got := w.where(); got != "early:a gated: late:b other:" {
			t.Error(got)
		}
		p := w.get("gated")
		p.Spec.SchedulingGates = nil
		if _, err := w.pods.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := w.where(); got != "early:a gated:a late:b other:" {
			t.Error(got)
		}
		if got := w.events(); len(got) != 3 || got[0] != "early Normal Scheduled x1: Successfully assigned ns/early to a" {
			t.Errorf("%q", got)
		}
		stop()
	})
}

func TestUnschedulablePodIsReportedAndRequeued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "1", "4Gi"))
		stop := w.start(scheduler.Config{})
		w.create(pod("first", "1"))
		settle()
		w.create(pod("second", "1"))
		settle()
		const why = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod. a: Insufficient cpu."
		conditions := w.get("second").Status.Conditions
		if len(conditions) != 1 || conditions[0].Type != corev1.PodScheduled || conditions[0].Status != corev1.ConditionFalse ||
			conditions[0].Reason != "Unschedulable" || conditions[0].Message != why {
			t.Errorf("%+v", conditions)
		}
		if got := w.events(); len(got) != 2 || got[1] != "second Warning FailedScheduling x1: "+why {
			t.Errorf("%q", got)
		}
		// An irrelevant change does not cause an attempt.
		before := len(w.api.Writes())
		n, err := w.nodes.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		if _, err := w.nodes.UpdateStatus(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := len(w.api.Writes()); got != before+1 {
			t.Errorf("%v", w.api.Writes()[before:])
		}
		began := time.Now()
		if err := w.pods.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for w.get("second").Spec.NodeName == "" {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("woken after %v", took)
		}
		stop()
	})
}

func TestNoNodesYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.start(scheduler.Config{})
		w.create(pod("p", "1"))
		settle()
		if c := w.get("p").Status.Conditions; len(c) != 1 || c[0].Message != "no nodes available to schedule pods" {
			t.Errorf("%+v", c)
		}
		w.node(node("a", "1", "4Gi"))
		settle()
		if got := w.where(); got != "p:a" {
			t.Error(got)
		}
		stop()
	})
}

// TestLostAnswers makes bindings fail in every way; no pod may be lost or bound twice, and no
// node overcommitted.
func TestLostAnswers(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(*world, *atomic.Int32)
	}{
		{"the request never arrives", func(w *world, n *atomic.Int32) {
			w.api.Before = func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/binding") && n.Add(1)%3 != 0 {
					return nil, io.ErrUnexpectedEOF
				}
				return nil, nil
			}
		}},
		{"the answer never arrives", func(w *world, n *atomic.Int32) {
			w.api.After = func(r *http.Request) error {
				if strings.HasSuffix(r.URL.Path, "/binding") && n.Add(1)%3 != 0 {
					return io.ErrUnexpectedEOF
				}
				return nil
			}
		}},
		{"the server is out of order", func(w *world, n *atomic.Int32) {
			w.api.Before = func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost && n.Add(1)%2 != 0 {
					return &http.Response{StatusCode: 500, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(nil))}, nil
				}
				return nil, nil
			}
		}},
		{"the watches break all the time", func(w *world, n *atomic.Int32) {
			w.api.After = func(r *http.Request) error {
				if strings.HasSuffix(r.URL.Path, "/binding") {
					w.api.Break()
				}
				return nil
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var n atomic.Int32
				test.fault(w, &n)
				for i := range 4 {
					w.prepareNode(fmt.Sprint("n", i))
				}
				for i := range 50 {
					w.preparePod(fmt.Sprint("p", i))
				}
				stop := w.start(scheduler.Config{})
				time.Sleep(20 * time.Minute)
				stop()
				perNode := map[string]int{}
				list, err := w.pods.List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range list.Items {
					perNode[p.Spec.NodeName]++
				}
				for name, count := range perNode {
					if name != "" && count != 10 || name == "" && count != 10 {
						t.Errorf("node %q has %d pods of 10: %v", name, count, perNode)
					}
				}
			})
		})
	}
}

// prepareNode and preparePod retry, because the faults affect the test's own requests, too.
func (w *world) prepareNode(name string) {
	w.t.Helper()
	for range 10 {
		if _, err := w.nodes.Create(w.t.Context(), node(name, "1", "4Gi")); err == nil {
			return
		}
	}
	w.t.Fatal("no node")
}

func (w *world) preparePod(name string) {
	w.t.Helper()
	for range 10 {
		if _, err := w.pods.Create(w.t.Context(), pod(name, "100m")); err == nil {
			return
		}
	}
	w.t.Fatal("no pod")
}

// TestAStaleConditionDoesNotReachABoundPod delays the report of a failure until the pod has
// been bound: the pod must not get the condition then.
func TestAStaleConditionDoesNotReachABoundPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Before = func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status") {
				time.Sleep(10 * time.Second)
			}
			return nil, nil
		}
		stop := w.start(scheduler.Config{})
		w.create(pod("p", "1"))
		time.Sleep(2 * time.Second)
		w.node(node("a", "1", "4Gi"))
		time.Sleep(time.Minute)
		p := w.get("p")
		if p.Spec.NodeName != "a" || len(p.Status.Conditions) != 0 {
			t.Errorf("on %q, says %+v", p.Spec.NodeName, p.Status.Conditions)
		}
		stop()
	})
}

// TestOneOfManyLeads kills leaders while pods are created: each pod is bound once.
func TestOneOfManyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "32", "64Gi"))
		var stops []func()
		for i := range 3 {
			stops = append(stops, w.start(scheduler.Config{Election: daemon.Election{LeaderElect: true, Identity: fmt.Sprint("r", i)}}))
		}
		for i := range 30 {
			w.create(pod(fmt.Sprint("p", i), "100m"))
			time.Sleep(time.Second)
			if i == 10 || i == 20 {
				stops[0]()
				stops = stops[1:]
			}
		}
		time.Sleep(time.Minute)
		for _, stop := range stops {
			stop()
		}
		list, err := w.pods.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			if p.Spec.NodeName != "a" {
				t.Errorf("%s is on %q", p.Name, p.Spec.NodeName)
			}
		}
		if n := w.count("/binding"); n != 30 {
			t.Errorf("%d bindings for 30 pods", n)
		}
	})
}

// TestALongAbsenceOfTheServer makes the leader lose its lease; it must lead again when the
// server is back, without a restart.
func TestALongAbsenceOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var down atomic.Bool
		w.api.Before = func(*http.Request) (*http.Response, error) {
			if down.Load() {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, nil
		}
		w.node(node("a", "1", "4Gi"))
		stop := w.start(scheduler.Config{Election: daemon.Election{LeaderElect: true}})
		settle()
		down.Store(true)
		w.api.Break()
		time.Sleep(10 * time.Minute)
		down.Store(false)
		w.create(pod("p", "1"))
		settle()
		if got := w.where(); got != "p:a" {
			t.Error(got)
		}
		stop()
	})
}

func TestADeletedPodFreesItsRoomWhileItIsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "1", "4Gi"))
		w.api.Before = func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/p1/binding") {
				time.Sleep(5 * time.Second)
			}
			return nil, nil
		}
		stop := w.start(scheduler.Config{})
		settle()
		w.create(pod("p1", "1"))
		time.Sleep(time.Second)
		w.create(pod("p2", "1")) // waits for p1's resources
		time.Sleep(time.Second)
		if err := w.pods.Delete(t.Context(), "p1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := w.where(); got != "p2:a" {
			t.Error(got)
		}
		stop()
	})
}

// A pod that is being resized counts with the larger of what it has and what it asks
// for, until the node says that it cannot have that.
func TestAResizedPodCountsWithTheLargerRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "4", "4Gi"))
		stop := w.start(scheduler.Config{})
		settle()
		w.create(pod("p1", "3"))
		settle()
		change := func(spec, has string, conditions ...corev1.PodCondition) {
			p := w.get("p1")
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(spec)
			requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(has)}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, AllocatedResources: requests, Resources: &corev1.ResourceRequirements{Requests: requests}}}
			p.Status.Conditions = conditions
			p.Generation++
			if _, err := w.pods.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			settle()
		}
		change("1", "3") // the node has not shrunk it yet
		w.create(pod("p2", "2"))
		settle()
		if got := w.where(); got != "p1:a p2:" {
			t.Errorf("before the resize: %s", got)
		}
		change("1", "1")
		settle()
		if got := w.where(); got != "p1:a p2:a" {
			t.Errorf("after the resize: %s", got)
		}
		change("2", "1") // deferred: counted
		w.create(pod("p3", "1"))
		settle()
		if got := w.where(); got != "p1:a p2:a p3:" {
			t.Errorf("while a larger size is wanted: %s", got)
		}
		change("2", "1", corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible})
		settle()
		if got := w.where(); got != "p1:a p2:a p3:a" {
			t.Errorf("when that is infeasible: %s", got)
		}
		stop()
	})
}

func TestAnUnfitConfigurationIsRefused(t *testing.T) {
	err := scheduler.Run(t.Context(), scheduler.Config{Client: clienttest.New().Client(t), Election: daemon.Election{LeaderElect: true, LeaseDuration: time.Second}})
	if err == nil || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
