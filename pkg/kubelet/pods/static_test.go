package pods

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/podspec"
)

// newStatic returns a static pod as its manifest makes it.
func newStatic(name string, uid types.UID, change ...func(*corev1.Pod)) *corev1.Pod {
	p := newPod(name, change...)
	p.UID = uid
	p.Annotations = map[string]string{podspec.SourceAnnotation: podspec.FileSource}
	return p
}

// isolated is a node without an API, which knows its manifests if known says so.
func isolated(known *atomic.Bool) func(*rig) {
	return func(r *rig) {
		r.unsynced, r.api.down = true, true
		r.tweak = func(c *Config) {
			c.Node = func() *corev1.Node { return nil }
			c.Services = func() ([]*corev1.Service, bool) { return nil, false }
			c.Statics = &Statics{Known: known.Load, Changed: func() {}, Draft: testNode}
		}
	}
}

func TestStaticPodNeedsNoAPI(t *testing.T) {
	var known atomic.Bool
	known.Store(true)
	bubbleWith(t, crifake.Config{}, isolated(&known), func(r *rig) {
		r.manager.Update(nil, newPod("bound"))
		r.manager.Update(nil, newStatic("web", "one"))
		r.pass(5 * time.Second)
		if c := r.runtime.Containers(); len(c) != 1 || c[0].UID != "one" {
			t.Errorf("containers %+v", c)
		}
	})
}

// A pod waits for the one with its name, also if the two are the same.
func TestStaticPodsWithOneName(t *testing.T) {
	var known atomic.Bool
	known.Store(true)
	slow := crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{TermDelay: 3 * time.Second} }}
	bubbleWith(t, slow, isolated(&known), func(r *rig) {
		one, two := newStatic("web", "one"), newStatic("web", "two")
		r.manager.Update(nil, one)
		r.pass(5 * time.Second)
		r.manager.Update(one, nil)
		r.manager.Update(nil, two)
		r.pass(time.Second)
		if all := r.manager.StaticPods(); len(all) != 2 || all[0].UID != "two" || !all[1].Ending {
			t.Errorf("static pods %+v", all)
		}
		r.manager.Update(two, nil)
		r.manager.Update(nil, one)
		r.pass(5 * time.Second)
		if c := r.runtime.Containers(); len(c) != 1 || c[0].UID != "one" || c[0].Created.Before(time.Now().Add(-4*time.Second)) {
			t.Errorf("containers %+v", c)
		}
		if all := r.manager.StaticPods(); len(all) != 1 || all[0].Ending {
			t.Errorf("static pods %+v", all)
		}
	})
}

// Static pods whose manifests are gone when the kubelet starts are ended without the API,
// once all manifests are known. Pods of the API are not.
func TestFormerStaticPodsEnd(t *testing.T) {
	var known atomic.Bool
	known.Store(true)
	bubbleWith(t, crifake.Config{}, isolated(&known), func(r *rig) {
		kept := newStatic("kept", "kept")
		for _, p := range []*corev1.Pod{newStatic("gone", "gone"), kept, newPod("bound")} {
			r.manager.Update(nil, p)
		}
		r.manager.Synced()
		r.pass(5 * time.Second)
		known.Store(false)
		r.restart()
		r.manager.Update(nil, kept)
		r.pass(5 * time.Second)
		before := len(r.runtime.Containers())
		known.Store(true)
		r.pass(5 * time.Second)
		for _, c := range r.runtime.Containers() {
			if c.UID == "gone" || c.Attempt > 0 {
				t.Errorf("container %+v", c)
			}
		}
		if after := len(r.runtime.Containers()); after != before-1 {
			t.Errorf("%d containers, before %d", after, before)
		}
	})
}

func TestStaticPodsAreCritical(t *testing.T) {
	if !critical(newStatic("web", "one")) || critical(newPod("web")) {
		t.Error("a static pod is not critical, or any pod is")
	}
}

// A static pod has its start time only in the status that is written.
func TestStaticPodHasADeadline(t *testing.T) {
	var known atomic.Bool
	known.Store(true)
	bubbleWith(t, crifake.Config{}, isolated(&known), func(r *rig) {
		r.manager.Update(nil, newStatic("web", "one", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(10)) }))
		r.pass(5 * time.Second)
		if p := r.manager.Pods(); len(p) != 1 || p[0].Status.Phase != corev1.PodRunning {
			t.Errorf("pods %+v", p)
		}
		r.pass(10 * time.Second)
		if p := r.manager.Pods(); len(p) != 1 || p[0].Status.Reason != "DeadlineExceeded" {
			t.Errorf("pods %+v", p)
		}
	})
}

func TestCensus(t *testing.T) {
	var known atomic.Bool
	known.Store(true)
	slow := crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{TermDelay: 3 * time.Second} }}
	bubbleWith(t, slow, func(r *rig) {
		isolated(&known)(r)
		prepared := r.tweak
		r.tweak = func(c *Config) {
			prepared(c)
			c.Node = testNode
			c.Services = func() ([]*corev1.Service, bool) { return nil, true }
		}
	}, func(r *rig) {
		one := newStatic("web", "one")
		for _, p := range []*corev1.Pod{one, newStatic("db", "two"), newPod("bound")} {
			r.manager.Update(nil, p)
		}
		r.manager.Synced()
		r.pass(5 * time.Second)
		r.manager.Update(one, nil)
		synctest.Wait()
		const want = `# HELP kubelet_active_pods Number of pods that count against the node's resources when others are admitted, by whether they are static.
# TYPE kubelet_active_pods gauge
kubelet_active_pods{static=""} 1
kubelet_active_pods{static="true"} 2
# HELP kubelet_desired_pods Number of pods that the kubelet is to run, by whether they are static.
# TYPE kubelet_desired_pods gauge
kubelet_desired_pods{static=""} 1
kubelet_desired_pods{static="true"} 1
# HELP kubelet_mirror_pods Number of mirror pods that the kubelet keeps in the API, one per static pod.
# TYPE kubelet_mirror_pods gauge
kubelet_mirror_pods 1
# HELP kubelet_working_pods Number of pods that the kubelet works on, by whether they are desired, orphaned or known only to the runtime, by their lifecycle, and by whether they are static.
# TYPE kubelet_working_pods gauge
kubelet_working_pods{config="desired",lifecycle="sync",static=""} 1
kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1
kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 1
`
		registry := prometheus.NewRegistry()
		registry.MustRegister(Census{r.manager})
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}
