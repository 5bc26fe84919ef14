package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheduler"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// license is a plugin that implements all extension points around the binding. Each pod takes
// one of the free licenses.
type license struct {
	mu     sync.Mutex
	free   int
	calls  []string
	permit func() error
	bind   func() error
}

func (*license) Name() string { return "License" }

// record records a call, takes that many licenses, and returns how many are free.
func (l *license) record(call string, pod *snapshot.Pod, takes int) (free int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call+" "+pod.Name)
	l.free -= takes
	return l.free
}

// state returns the calls so far and the number of free licenses.
func (l *license) state() (calls string, free int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.calls, ", "), l.free
}

// add adds free licenses.
func (l *license) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free += n
}

func (l *license) Reserve(pod *snapshot.Pod, node string) error {
	if l.record("reserve", pod, 1) < 0 {
		return errors.New("no license is free")
	}
	return nil
}

func (l *license) Unreserve(pod *snapshot.Pod, node string) {
	l.record("unreserve", pod, -1)
}

func (*license) Waits(*snapshot.Pod) bool { return true }

func (l *license) Permit(ctx context.Context, pod *snapshot.Pod, node string) error {
	l.record("permit", pod, 0)
	return l.permit()
}

func (l *license) PreBind(ctx context.Context, pod *snapshot.Pod, node string) error {
	l.record("prebind", pod, 0)
	return l.bind()
}

func (l *license) PostBind(ctx context.Context, pod *snapshot.Pod, node string) {
	l.record("postbind", pod, 0)
}

func (l *license) PostFilter(c *framework.Cycle) framework.Nomination {
	l.record("postfilter", c.Pod, 0)
	return framework.Nomination{Node: c.Error.Nodes[0].Node}
}

func withLicense(free int) (*license, scheduler.Config) {
	ok := func() error { return nil }
	l := &license{free: free, permit: ok, bind: ok}
	return l, scheduler.Config{Plugins: []framework.Weighted{{Plugin: l}}}
}

func TestReservationIsUndone(t *testing.T) {
	failing := func(times int) func() error {
		return func() error {
			if times--; times >= 0 {
				return errors.New("not now")
			}
			return nil
		}
	}
	for name, test := range map[string]struct {
		reason string
		change func(*world, *license)
		want   string
	}{
		"Success": {
			reason: "every extension point runs once",
			change: func(*world, *license) {},
			want:   "reserve p, permit p, prebind p, postbind p",
		},
		"Reserve": {
			reason: "Unreserve also runs when Reserve itself fails",
			change: func(_ *world, l *license) {
				l.free = 0
				time.AfterFunc(500*time.Millisecond, func() { l.add(1) })
			},
			want: "reserve p, unreserve p, reserve p, permit p, prebind p, postbind p",
		},
		"Permit": {
			reason: "a rejected binding frees the node and the license",
			change: func(_ *world, l *license) { l.permit = failing(1) },
			want:   "reserve p, permit p, unreserve p, reserve p, permit p, prebind p, postbind p",
		},
		"PreBind": {
			reason: "so does a failed preparation",
			change: func(_ *world, l *license) { l.bind = failing(1) },
			want:   "reserve p, permit p, prebind p, unreserve p, reserve p, permit p, prebind p, postbind p",
		},
		"Bind": {
			reason: "and a binding that the API server refuses",
			change: func(w *world, _ *license) {
				refuse := failing(1)
				w.api.Before = func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/binding") && refuse() != nil {
						return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody}, nil
					}
					return nil, nil
				}
			},
			want: "reserve p, permit p, prebind p, unreserve p, reserve p, permit p, prebind p, postbind p",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.node(node("a", "1", "4Gi"))
				l, cfg := withLicense(1)
				test.change(w, l)
				stop := w.start(cfg)
				w.create(pod("p", "1"))
				settle()
				if got, free := l.state(); got != test.want || w.where() != "p:a" || free != 0 {
					t.Errorf("%s: pods %s, %d licenses free, calls\n got %s\nwant %s", test.reason, w.where(), free, got, test.want)
				}
				stop()
			})
		})
	}
}

// TestPermitDelaysOnlyItsPod blocks one pod in Permit: even with Binds 1 the next pod is bound
// meanwhile.
func TestPermitDelaysOnlyItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "2", "4Gi"))
		l, cfg := withLicense(2)
		first := make(chan struct{}, 1)
		first <- struct{}{}
		l.permit = func() error {
			select {
			case <-first:
				time.Sleep(time.Minute)
			default:
			}
			return nil
		}
		cfg.Binds = 1
		stop := w.start(cfg)
		w.create(pod("p1", "1"))
		time.Sleep(time.Second)
		w.create(pod("p2", "1"))
		settle()
		if got := w.where(); got != "p1: p2:a" {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		if got := w.where(); got != "p1:a p2:a" {
			t.Error(got)
		}
		stop()
	})
}

func TestPostFilterNominatesANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "1", "4Gi"))
		_, cfg := withLicense(1)
		stop := w.start(cfg)
		w.create(pod("p", "2"))
		settle()
		if got := w.get("p").Status; got.NominatedNodeName != "a" || len(got.Conditions) != 1 {
			t.Errorf("%+v", got)
		}
		stop()
	})
}

// TestSpreadPodsWaitForRoomInTheirDomain runs the daemon: a pod that would exceed maxSkew is
// Pending with upstream's message until a pod elsewhere, or a change of labels, evens out the
// domains.
func TestSpreadPodsWaitForRoomInTheirDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, zone := range []string{"a", "b"} {
			n := node(zone, map[string]string{"a": "8", "b": "1"}[zone], "4Gi")
			n.Labels = map[string]string{"zone": zone}
			w.node(n)
		}
		spread := func(name string) *corev1.Pod {
			p := pod(name, "1")
			p.Labels = map[string]string{"app": "x"}
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
			return p
		}
		stop := w.start(scheduler.Config{})
		for _, name := range []string{"p1", "p2", "p3", "p4"} {
			w.create(spread(name))
			settle()
		}
		if got := w.where(); got != "p1:a p2:b p3:a p4:" {
			t.Error(got)
		}
		const why = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints."
		if c := w.get("p4").Status.Conditions; len(c) != 1 || !strings.HasPrefix(c[0].Message, why) {
			t.Errorf("%+v", c)
		}
		p3 := w.get("p3")
		p3.Labels = nil
		if _, err := w.pods.Update(t.Context(), p3); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := w.where(); got != "p1:a p2:b p3:a p4:a" {
			t.Error(got)
		}
		if events := w.events(); !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "p4 Warning FailedScheduling x1: "+why) }) {
			t.Errorf("%q", events)
		}
		stop()
	})
}

// TestRelabelledPodIsRetried changes the label for which a pod is repelled.
func TestRelabelledPodIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := node("a", "4", "4Gi")
		n.Labels = map[string]string{corev1.LabelHostname: "a"}
		w.node(n)
		alone := pod("alone", "1")
		alone.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}}}
		w.create(alone)
		stop := w.start(scheduler.Config{})
		settle()
		p := pod("p", "1")
		p.Labels = map[string]string{"app": "web"}
		w.create(p)
		settle()
		if got := w.where(); got != "alone:a p:" {
			t.Fatal(got)
		}
		p = w.get("p")
		p.Labels = map[string]string{"app": "db"}
		if _, err := w.pods.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := w.where(); got != "alone:a p:a" {
			t.Error(got)
		}
		stop()
	})
}

// TestReplicasSpread has two nodes, of which the larger one would get all pods for its free
// resources: the pods of a ReplicaSet go to both.
func TestReplicasSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for name, cpu := range map[string]string{"large": "64", "small": "8"} {
			n := node(name, cpu, "64Gi")
			n.Labels = map[string]string{corev1.LabelHostname: name}
			w.node(n)
		}
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		set, err := client.For[*appsv1.ReplicaSet](w.api.Client(t)).In("ns").Create(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		stop := w.start(scheduler.Config{})
		settle()
		for i := range 4 {
			p := pod(fmt.Sprint("p", i), "100m")
			p.Labels = set.Spec.Selector.MatchLabels
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: new(true)}}
			w.create(p)
			settle()
		}
		if large, small := strings.Count(w.where(), ":large"), strings.Count(w.where(), ":small"); large != 2 || small != 2 {
			t.Error(w.where())
		}
		stop()
	})
}
