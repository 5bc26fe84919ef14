package pods

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cpumanager"
	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/hardware/drawn"
	"podium/pkg/kubelet/memorymanager"
	"podium/pkg/kubelet/placement"
	"podium/pkg/kubelet/topology"
)

// placedBubble is bubble with the CPU manager policy static and the memory manager policy
// Static on a machine with 4 CPUs, of which CPU 0 is reserved.
func placedBubble(t *testing.T, options cpumanager.Options, f func(r *rig)) {
	t.Helper()
	stopped := func() {} // ends the placement of the kubelet that was stopped
	bubbleWith(t, crifake.Config{}, func(r *rig) {
		r.tweak = func(c *Config) {
			stopped()
			machine := drawn.Drawing{Sockets: 1, Nodes: 2, Cores: 2, Threads: 2, Memory: 1 << 30}.Machine()
			p, err := placement.New(placement.Config{
				Period: time.Minute, Dir: r.dir, Topology: topology.Config{Machine: machine},
				Memory: &memorymanager.Config{Machine: machine, Dir: r.dir, Log: slog.New(slog.DiscardHandler)},
				CPUs:   &cpumanager.Config{Options: options, Machine: machine, ReservedMilli: 100, Dir: r.dir, Log: slog.New(slog.DiscardHandler)},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.Placement = p
			ctx, cancel := context.WithCancel(context.Background())
			stopped = cancel
			go p.Run(ctx, r.runtime)
		}
	}, func(r *rig) {
		defer func() { stopped() }()
		f(r)
	})
}

// wanting returns a Guaranteed pod with the CPUs.
func wanting(name, cpu string) *corev1.Pod {
	return newPod(name, func(p *corev1.Pod) {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Mi")}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		p.Status.QOSClass = corev1.PodQOSGuaranteed
	})
}

// cpus returns the CPUs of the running containers by pod.
func (r *rig) cpus() map[string]string {
	out := map[string]string{}
	for _, c := range r.runtime.Containers() {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			out[c.Pod] = c.Linux.CpusetCpus
		}
	}
	return out
}

func (r *rig) runOn(want map[string]string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.cpus()); diff != "" {
		r.t.Error(diff)
	}
}

func TestExclusiveCPUs(t *testing.T) {
	placedBubble(t, cpumanager.Options{}, func(r *rig) {
		r.api.create(newPod("shared"))
		r.api.create(wanting("own", "1"))
		r.pass(time.Second)
		r.runOn(map[string]string{"shared": "0-1,3", "own": "2"})
		if l := r.container("own", "app").Linux; l.CpuQuota != 0 || l.CpusetMems != "0" {
			t.Errorf("the container has a quota or no NUMA node: %v", l)
		}

		r.api.create(wanting("part", "500m"))
		r.api.create(wanting("two", "2"))
		r.pass(time.Second)
		r.runOn(map[string]string{"shared": "0", "part": "0", "own": "2", "two": "1,3"})
		if l := r.container("part", "app").Linux; l.CpusetCpus != "0" {
			t.Errorf("a container of the shared pool: %v", l)
		}

		started := len(r.calls("StartContainer"))
		r.restart()
		r.pass(time.Second)
		r.runOn(map[string]string{"shared": "0", "part": "0", "own": "2", "two": "1,3"})
		if got := len(r.calls("StartContainer")); got != started {
			t.Errorf("the restart started %d containers", got-started)
		}

		r.api.deleteGracefully("two", 0)
		r.pass(10 * time.Second)
		r.runOn(map[string]string{"shared": "0-1,3", "part": "0-1,3", "own": "2"})
	})
}

func TestPodWithoutCPUsIsRefused(t *testing.T) {
	placedBubble(t, cpumanager.Options{FullCores: true}, func(r *rig) {
		for name, c := range map[string]struct{ cpu, reason, message string }{
			"odd":  {"1", "SMTAlignmentError", "Pod was rejected: SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"},
			"many": {"4", "SMTAlignmentError", "Pod was rejected: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2"},
		} {
			r.api.create(wanting(name, c.cpu))
			r.pass(time.Second)
			if s := r.pod(name).Status; s.Phase != corev1.PodFailed || s.Reason != c.reason || s.Message != c.message {
				t.Errorf("%s: %s, %s: %s", name, s.Phase, s.Reason, s.Message)
			}
		}
		r.api.create(wanting("fits", "2"))
		r.pass(time.Second)
		r.runOn(map[string]string{"fits": "1,3"})
	})
}

// A pod that ends gives its CPUs to the next one, though the API still has it. A pod that
// was deleted while no kubelet was running loses them when all others are known.
func TestCPUsOfEndedPods(t *testing.T) {
	placedBubble(t, cpumanager.Options{}, func(r *rig) {
		r.api.create(wanting("first", "3"))
		r.pass(time.Second)
		r.runOn(map[string]string{"first": "1-3"})
		r.api.change("first", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) })
		r.pass(time.Minute)
		r.api.create(wanting("second", "3"))
		r.pass(time.Second)
		r.runOn(map[string]string{"second": "1-3"})

		r.stop()
		r.api.drop("second")
		r.start()
		r.pass(2 * time.Minute)
		if held := r.manager.cfg.Placement.Holders(); len(held) != 0 {
			t.Errorf("deleted pods hold CPUs: %v", held)
		}
		r.api.create(wanting("third", "3"))
		r.pass(time.Second)
		r.runOn(map[string]string{"third": "1-3"})
	})
}

func TestResizeOfBoundMemoryIsInfeasible(t *testing.T) {
	placedBubble(t, cpumanager.Options{}, func(r *rig) {
		r.api.create(wanting("own", "500m"))
		r.pass(time.Second)
		r.api.change("own", func(p *corev1.Pod) {
			p.Generation++
			for _, list := range []corev1.ResourceList{p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits} {
				list[corev1.ResourceMemory] = resource.MustParse("2Mi")
			}
		})
		r.pass(time.Second)
		c := conditions.Find(r.pod("own").Status.Conditions, corev1.PodResizePending)
		if want := `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`; c == nil || c.Reason != corev1.PodReasonInfeasible || c.Message != want {
			t.Errorf("condition %+v", c)
		}
	})
}

func TestResizeOfExclusiveCPUsIsInfeasible(t *testing.T) {
	placedBubble(t, cpumanager.Options{}, func(r *rig) {
		r.api.create(wanting("own", "1"))
		r.pass(time.Second)
		r.api.change("own", func(p *corev1.Pod) { *p = *resized(p, wanting("own", "2")) })
		r.pass(time.Second)
		c := conditions.Find(r.pod("own").Status.Conditions, corev1.PodResizePending)
		if want := `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`; c == nil || c.Reason != corev1.PodReasonInfeasible || c.Message != want {
			t.Errorf("condition %+v", c)
		}
		r.runOn(map[string]string{"own": "2"})
	})
}

// resized returns the pod with the resources of another one.
func resized(p, like *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	out.Generation++
	out.Spec.Containers[0].Resources = like.Spec.Containers[0].Resources
	return out
}

// A state that is lost while pods run is created again; the pods go on.
func TestLostStateIsMadeAnew(t *testing.T) {
	placedBubble(t, cpumanager.Options{}, func(r *rig) {
		r.api.create(wanting("own", "2"))
		r.api.create(newPod("shared"))
		r.pass(time.Second)
		before := r.cpus()
		r.stop()
		if err := os.Remove(filepath.Join(r.dir, cpumanager.StateFile)); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.pass(time.Second)
		r.runOn(before)
	})
}
