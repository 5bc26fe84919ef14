package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/resources"
)

// kernel is a cgroup hierarchy in memory, which does what the kernel does: the limits
// of a container cannot exceed those of its pod.
type kernel struct {
	resources.None
	t       *testing.T
	runtime func() []crifake.Container

	mu   sync.Mutex
	pods map[types.UID]resources.Group
}

func (g *kernel) Ensure(_ context.Context, pod *corev1.Pod) (string, error) {
	return "/" + string(pod.UID), g.set(pod.UID, resources.Pod(pod, 0))
}

func (g *kernel) Widen(_ context.Context, pod, from *corev1.Pod) error {
	return g.set(pod.UID, resources.Pod(pod, 0).Or(resources.Pod(from, 0)))
}

func (g *kernel) set(uid types.UID, to resources.Group) error {
	for _, c := range g.runtime() {
		if c.UID == string(uid) && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			if err := within(to, c.Linux); err != nil {
				g.t.Errorf("pod cgroup %+v: container %s: %v", to, c.Name, err)
				return err
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pods[uid] = to
	return nil
}

func (g *kernel) limit(c crifake.Container, to *runtimeapi.LinuxContainerResources) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return within(g.pods[types.UID(c.UID)], to)
}

func within(g resources.Group, c *runtimeapi.LinuxContainerResources) error {
	if g.Quota > 0 && c.CpuQuota > g.Quota || g.Memory > 0 && c.MemoryLimitInBytes > g.Memory {
		return fmt.Errorf("write: invalid argument: %d %d of %+v", c.CpuQuota, c.MemoryLimitInBytes, g)
	}
	return nil
}

// resizeBubble is bubble with cgroups.
func resizeBubble(t *testing.T, cfg crifake.Config, f func(r *rig, g *kernel)) {
	t.Helper()
	g := &kernel{t: t, pods: map[types.UID]resources.Group{}}
	cfg.Limit = g.limit
	bubbleWith(t, cfg, func(r *rig) {
		g.runtime = r.runtime.Containers
		r.tweak = func(c *Config) { c.Cgroups = g }
	}, func(r *rig) { f(r, g) })
}

// amounts parses "cpu/memory" of requests and limits; an empty one is not set.
func amounts(requests, limits string) corev1.ResourceRequirements {
	parse := func(text string) corev1.ResourceList {
		cpu, memory, _ := strings.Cut(text, "/")
		out := corev1.ResourceList{}
		if cpu != "" {
			out[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			out[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return out
	}
	return corev1.ResourceRequirements{Requests: parse(requests), Limits: parse(limits)}
}

// sized sets the resources of the containers of a pod, as "requests limits", and adds
// containers c2, c3, ... as needed.
func sized(list ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.QOSClass = ""
		for i, text := range list {
			if i >= len(p.Spec.Containers) {
				p.Spec.Containers = append(p.Spec.Containers, newContainer(fmt.Sprintf("c%d", i+1)))
			}
			requests, limits, _ := strings.Cut(text, " ")
			p.Spec.Containers[i].Resources = amounts(requests, limits)
		}
		p.Generation++
	}
}

// sizes describes the resources of a pod's containers in its status and in the runtime.
func (r *rig) sizes(name string) string {
	var out []string
	for _, s := range r.pod(name).Status.ContainerStatuses {
		text := func(l corev1.ResourceList) string { return l.Cpu().String() + "/" + l.Memory().String() }
		linux := r.container(name, s.Name).Linux
		out = append(out, fmt.Sprintf("%s: %s %s granted %s, quota %d memory %dMi shares %d, restarts %d", s.Name,
			text(s.Resources.Requests), text(s.Resources.Limits), text(s.AllocatedResources), linux.CpuQuota, linux.MemoryLimitInBytes>>20, linux.CpuShares, s.RestartCount))
	}
	return strings.Join(out, "\n")
}

func (r *rig) resizeCondition(name string, t corev1.PodConditionType) string {
	c := conditions.Find(r.pod(name).Status.Conditions, t)
	if c == nil {
		return ""
	}
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
}

func TestResizeUpAndDown(t *testing.T) {
	resizeBubble(t, crifake.Config{}, func(r *rig, g *kernel) {
		r.api.create(newPod("a", sized("100m/100Mi 100m/100Mi", "200m/200Mi 200m/200Mi", "300m/300Mi 300m/300Mi")))
		r.pass(2 * time.Second)
		for _, step := range []struct{ resize, want []string }{
			{[]string{"400m/400Mi 400m/400Mi", "300m/300Mi 300m/300Mi", "50m/50Mi 50m/50Mi"}, []string{
				"app: 400m/400Mi 400m/400Mi granted 400m/400Mi, quota 40000 memory 400Mi shares 409, restarts 0",
				"c2: 300m/300Mi 300m/300Mi granted 300m/300Mi, quota 30000 memory 300Mi shares 307, restarts 0",
				"c3: 50m/50Mi 50m/50Mi granted 50m/50Mi, quota 5000 memory 50Mi shares 51, restarts 0"}},
			{[]string{"100m/100Mi 100m/100Mi", "200m/400Mi 200m/400Mi", "300m/300Mi 300m/300Mi"}, []string{
				"app: 100m/100Mi 100m/100Mi granted 100m/100Mi, quota 10000 memory 100Mi shares 102, restarts 0",
				"c2: 200m/400Mi 200m/400Mi granted 200m/400Mi, quota 20000 memory 400Mi shares 204, restarts 0",
				"c3: 300m/300Mi 300m/300Mi granted 300m/300Mi, quota 30000 memory 300Mi shares 307, restarts 0"}},
		} {
			r.api.change("a", sized(step.resize...))
			r.pass(time.Second)
			if got := r.sizes("a"); got != strings.Join(step.want, "\n") {
				t.Errorf("resized to %v:\n%s", step.resize, got)
			}
			p := r.pod("a")
			if !cmp.Equal(g.pods[p.UID], resources.Pod(p, 0)) {
				t.Errorf("cgroup of the pod: %+v", g.pods[p.UID])
			}
			if in := r.resizeCondition("a", corev1.PodResizeInProgress) + r.resizeCondition("a", corev1.PodResizePending); in != "" || p.Status.ObservedGeneration != p.Generation {
				t.Errorf("condition %q, observed %d of %d", in, p.Status.ObservedGeneration, p.Generation)
			}
		}
		if a, b := r.api.eventsOf("ResizeStarted"), r.api.eventsOf("ResizeCompleted"); len(a) != 2 || len(b) != 2 {
			t.Errorf("events: %v %v", a, b)
		}
		before := len(r.calls("UpdateContainerResources"))
		r.restart()
		r.pass(time.Minute)
		if after := len(r.calls("UpdateContainerResources")); after != before {
			t.Errorf("a restarted kubelet resizes %d times", after-before)
		}
	})
}

// CPU values that the kernel cannot tell apart are still reported as asked for.
func TestResizeBetweenEqualSettings(t *testing.T) {
	resizeBubble(t, crifake.Config{}, func(r *rig, _ *kernel) {
		r.api.create(newPod("a", sized("2m/ 10m/")))
		r.pass(time.Second)
		r.api.change("a", sized("1m/ 5m/"))
		r.pass(time.Second)
		if got := r.sizes("a"); got != "app: 1m/0 5m/0 granted 1m/0, quota 1000 memory 0Mi shares 2, restarts 0" {
			t.Error(got)
		}
	})
}

func TestResizePolicyRestartsTheContainer(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure} {
		resizeBubble(t, crifake.Config{}, func(r *rig, _ *kernel) {
			r.api.create(newPod("a", sized("100m/100Mi 200m/200Mi", "100m/100Mi 200m/200Mi"), func(p *corev1.Pod) {
				p.Spec.RestartPolicy = policy
				p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
			}))
			r.pass(time.Second)
			r.api.change("a", sized("100m/100Mi 300m/200Mi", "100m/100Mi 200m/200Mi"))
			r.pass(time.Second)
			r.api.change("a", sized("100m/100Mi 300m/400Mi", "50m/50Mi 100m/100Mi"))
			r.pass(3 * time.Second)
			want := "app: 100m/100Mi 300m/400Mi granted 100m/100Mi, quota 30000 memory 400Mi shares 102, restarts 1\n" +
				"c2: 50m/50Mi 100m/100Mi granted 50m/50Mi, quota 10000 memory 100Mi shares 51, restarts 0"
			if got := r.sizes("a"); got != want {
				t.Errorf("%s:\n%s", policy, got)
			}
			if k := r.api.eventsOf("Killing"); !slices.Equal(k, []string{"Container app resize requires restart"}) {
				t.Errorf("%s: %v", policy, k)
			}
		})
	}
}

func TestResizeThatDoesNotFit(t *testing.T) {
	resizeBubble(t, crifake.Config{}, func(r *rig, _ *kernel) {
		r.api.create(newPod("a", sized("1/ 8/")))
		r.api.create(newPod("b", sized("2500m/ 8/")))
		r.pass(time.Second)
		r.api.change("a", sized("5/ 8/"))
		r.pass(time.Second)
		if got := r.resizeCondition("a", corev1.PodResizePending); got != "Infeasible: Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000" {
			t.Errorf("condition %q", got)
		}
		r.api.change("a", sized("2/ 8/"))
		r.pass(time.Second)
		const deferred = "Deferred: Node didn't have enough resource: cpu, requested: 2000, used: 2500, capacity: 4000"
		if got := r.resizeCondition("a", corev1.PodResizePending); got != deferred {
			t.Errorf("condition %q", got)
		}
		r.restart()
		r.pass(time.Second)
		if got := r.resizeCondition("a", corev1.PodResizePending); got != deferred || len(r.calls("UpdateContainerResources")) != 0 {
			t.Errorf("after a restart: condition %q, %v", got, r.calls("UpdateContainerResources"))
		}
		if e := r.api.eventsOf("ResizeDeferred"); len(e) != 1 {
			t.Errorf("events: %v", e)
		}
		r.api.change("b", sized("1/ 8/")) // makes room
		r.pass(time.Second)
		if got := r.sizes("a"); got != "app: 2/0 8/0 granted 2/0, quota 800000 memory 0Mi shares 2048, restarts 0" || r.resizeCondition("a", corev1.PodResizePending) != "" {
			t.Errorf("%s, %q", got, r.resizeCondition("a", corev1.PodResizePending))
		}
		r.api.create(newPod("c", sized("2/ 8/"))) // a's share is taken
		r.pass(time.Second)
		if p := r.pod("c"); p.Status.Reason != "OutOfcpu" {
			t.Errorf("c is %s", p.Status.Phase)
		}
	})
}

func TestDeferredResizesGoByPriority(t *testing.T) {
	resizeBubble(t, crifake.Config{}, func(r *rig, _ *kernel) {
		r.api.create(newPod("low", sized("500m/")))
		r.api.create(newPod("high", sized("500m/"), func(p *corev1.Pod) { p.Spec.Priority = ptr(int32(10)) }))
		r.api.create(newPod("big", sized("3/")))
		r.pass(time.Second)
		r.api.change("low", sized("2/"))
		r.api.change("high", sized("2/"))
		r.pass(time.Second)
		r.api.deleteGracefully("big", 1)
		r.pass(5 * time.Second)
		if low, high := r.resizeCondition("low", corev1.PodResizePending), r.resizeCondition("high", corev1.PodResizePending); high != "" || low != "" {
			t.Errorf("both fit: low %q, high %q", low, high)
		}
		r.api.create(newPod("big2", sized("3/")))
		r.pass(time.Second)
	})
	resizeBubble(t, crifake.Config{}, func(r *rig, _ *kernel) {
		r.api.create(newPod("low", sized("500m/")))
		r.api.create(newPod("high", sized("500m/"), func(p *corev1.Pod) { p.Spec.Priority = ptr(int32(10)) }))
		r.api.create(newPod("big", sized("3/")))
		r.pass(time.Second)
		r.api.change("low", sized("3/"))
		r.pass(time.Second)
		r.api.change("high", sized("3/"))
		r.pass(time.Second)
		r.api.deleteGracefully("big", 1)
		r.pass(5 * time.Second)
		if low, high := r.resizeCondition("low", corev1.PodResizePending), r.resizeCondition("high", corev1.PodResizePending); high != "" || !strings.HasPrefix(low, "Deferred") {
			t.Errorf("low %q, high %q", low, high)
		}
	})
}

func TestResizeErrorsAreReportedAndRetried(t *testing.T) {
	resizeBubble(t, crifake.Config{}, func(r *rig, _ *kernel) {
		r.api.create(newPod("a", sized("100m/100Mi 200m/200Mi")))
		r.pass(time.Second)
		r.runtime.Use(r.container("a", "app").ID, 150<<20)
		r.api.change("a", sized("100m/100Mi 200m/100Mi"))
		r.pass(10 * time.Second)
		const want = `Error: attempting to set container "app" memory limit (104857600) below current usage (157286400)`
		if got := r.resizeCondition("a", corev1.PodResizeInProgress); got != want {
			t.Errorf("condition %q", got)
		}
		if got := r.sizes("a"); got != "app: 100m/100Mi 200m/200Mi granted 100m/100Mi, quota 20000 memory 200Mi shares 102, restarts 0" {
			t.Error(got)
		}
		if e := r.api.eventsOf("ResizeError"); len(e) != 1 {
			t.Errorf("events: %v", e)
		}
		r.runtime.Use(r.container("a", "app").ID, 50<<20)
		r.pass(2 * time.Minute)
		if got := r.sizes("a"); got != "app: 100m/100Mi 200m/100Mi granted 100m/100Mi, quota 20000 memory 100Mi shares 102, restarts 0" || r.resizeCondition("a", corev1.PodResizeInProgress) != "" {
			t.Errorf("%s, %q", got, r.resizeCondition("a", corev1.PodResizeInProgress))
		}
	})
}

// A kubelet that stops before, during or after any call of a resize completes it after
// its restart, and restarts no container that need not be.
func TestKubeletRestartsDuringAResize(t *testing.T) {
	for fail := 0; fail < 6; fail++ {
		for _, lost := range []bool{false, true} { // whether the call that fails has had its effect
			n, armed := 0, false
			var stop func()
			cfg := crifake.Config{Fault: func(op string) error {
				if op != "UpdateContainerResources" && op != "StopContainer" || !armed {
					return nil
				}
				if n++; n-1 == fail {
					armed = false
					stop()
					if !lost {
						return errors.New("the kubelet is gone")
					}
				}
				return nil
			}}
			resizeBubble(t, cfg, func(r *rig, g *kernel) {
				r.api.create(newPod("a", sized("100m/100Mi 100m/100Mi", "200m/200Mi 200m/200Mi", "300m/300Mi 300m/300Mi"), func(p *corev1.Pod) {
					p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
					p.Spec.Containers[1].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
				}))
				r.pass(time.Second)
				crashed := make(chan struct{})
				stop = func() { close(crashed) }
				armed = true
				r.api.change("a", sized("50m/150Mi 50m/150Mi", "300m/200Mi 300m/200Mi", "100m/100Mi 100m/100Mi"))
				r.pass(time.Second)
				select {
				case <-crashed:
				default:
					armed = false
				}
				r.restart()
				r.pass(time.Minute)
				want := "app: 50m/150Mi 50m/150Mi granted 50m/150Mi, quota 5000 memory 150Mi shares 51, restarts 0\n" +
					"c2: 300m/200Mi 300m/200Mi granted 300m/200Mi, quota 30000 memory 200Mi shares 307, restarts 1\n" +
					"c3: 100m/100Mi 100m/100Mi granted 100m/100Mi, quota 10000 memory 100Mi shares 102, restarts 0"
				if got := r.sizes("a"); got != want {
					t.Errorf("call %d, lost %v:\n%s", fail, lost, got)
				}
				if p := r.pod("a"); !cmp.Equal(g.pods[p.UID], resources.Pod(p, 0)) {
					t.Errorf("call %d: cgroup of the pod is %+v", fail, g.pods[p.UID])
				}
			})
		}
	}
}

// A resize that the API accepted while no kubelet ran needs the node's consent, too.
func TestResizeWhileTheKubeletWasDown(t *testing.T) {
	resizeBubble(t, crifake.Config{}, func(r *rig, _ *kernel) {
		r.api.create(newPod("a", sized("1/")))
		r.api.create(newPod("b", sized("2/")))
		r.pass(time.Second)
		r.stop()
		r.api.change("a", sized("3/"))
		r.start()
		r.pass(time.Second)
		if got := r.resizeCondition("a", corev1.PodResizePending); !strings.HasPrefix(got, "Deferred") {
			t.Errorf("condition %q", got)
		}
		r.api.deleteGracefully("b", 1)
		r.pass(5 * time.Second)
		if got := r.sizes("a"); got != "app: 3/0 0/0 granted 3/0, quota 0 memory 0Mi shares 3072, restarts 0" {
			t.Error(got)
		}
	})
}
