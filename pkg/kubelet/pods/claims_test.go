package pods

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/cri/crifake"
)

// fakeClaims prepares claims in memory, which outlives the Manager as a checkpoint does.
type fakeClaims struct {
	mu    sync.Mutex
	err   error
	hang  bool
	sick  bool // the health of the device
	calls []string
	held  map[types.UID]bool
	ready map[types.UID]bool
}

func (f *fakeClaims) call(ctx context.Context, what string, pod types.UID) error {
	f.mu.Lock()
	f.calls = append(f.calls, what+" "+string(pod))
	err, hang := f.err, f.hang
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (f *fakeClaims) Prepare(ctx context.Context, pod *corev1.Pod) error {
	f.set(f.held, pod.UID, true)
	if err := f.call(ctx, "prepare", pod.UID); err != nil {
		return err
	}
	f.set(f.ready, pod.UID, true)
	return nil
}

func (f *fakeClaims) Unprepare(ctx context.Context, pod types.UID) error {
	if err := f.call(ctx, "unprepare", pod); err != nil {
		return err
	}
	f.set(f.held, pod, false)
	f.set(f.ready, pod, false)
	return nil
}

func (f *fakeClaims) Prepared(pod *corev1.Pod) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready[pod.UID]
}

func (f *fakeClaims) Devices(*corev1.Pod, *corev1.Container) ([]string, error) {
	return []string{"example.com/gpu=0"}, nil
}

func (f *fakeClaims) Health(pod *corev1.Pod, _ *corev1.Container) []corev1.ResourceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ready[pod.UID] {
		return nil
	}
	health := corev1.ResourceHealthStatusHealthy
	if f.sick {
		health = corev1.ResourceHealthStatusUnhealthy
	}
	return []corev1.ResourceStatus{{Name: "claim:card", Resources: []corev1.ResourceHealth{{ResourceID: "gpu.example.com/n/0", Health: health}}}}
}

func (f *fakeClaims) Pods() (out []types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range f.held {
		out = append(out, uid)
	}
	return out
}

func (f *fakeClaims) set(in map[types.UID]bool, pod types.UID, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in[pod] = is; !is {
		delete(in, pod)
	}
}

func (f *fakeClaims) fault(err error, hang bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hang = err, hang
}

func (f *fakeClaims) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.calls
	f.calls = nil
	return out
}

func withClaim(p *corev1.Pod) {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimName: new("card")}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "card"}}
}

// claimBubble runs a test with a node that has claims.
func claimBubble(t *testing.T, runtime crifake.Config, test func(r *rig, f *fakeClaims)) {
	t.Helper()
	f := &fakeClaims{held: map[types.UID]bool{}, ready: map[types.UID]bool{}}
	bubbleWith(t, runtime, func(r *rig) { r.tweak = func(c *Config) { c.Claims = f } }, func(r *rig) { test(r, f) })
}

func TestClaimsLastAsLongAsThePod(t *testing.T) {
	claimBubble(t, crifake.Config{}, func(r *rig, f *fakeClaims) {
		f.fault(errors.New("no driver"), false)
		r.api.create(newPod("a", withClaim))
		r.api.create(newPod("plain"))
		r.pass(20 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodPending || len(r.calls("RunPodSandbox a")) > 0 {
			t.Errorf("a pod without its claims is %s", p.Status.Phase)
		}
		events := r.api.eventsOf("FailedPrepareDynamicResources")
		if n := len(f.took()); len(events) != n || n < 3 || n > 6 || events[0] != "Failed to prepare dynamic resources: no driver" {
			t.Errorf("%d attempts, events %q", n, events)
		}
		f.fault(nil, false)
		r.pass(20 * time.Second)
		if got := r.container("a", "app").Config.CDIDevices; len(got) != 1 || got[0].Name != "example.com/gpu=0" {
			t.Errorf("the container has the devices %v", got)
		}
		if got := r.container("plain", "app").Config.CDIDevices; len(got) > 0 {
			t.Errorf("a container without claims has the devices %v", got)
		}
		r.runtime.Kill(r.container("a", "app").ID, 1)
		r.pass(time.Minute)
		r.restart()
		r.pass(time.Minute)
		if got := f.took(); !slices.Equal(got, []string{"prepare uid-a"}) {
			t.Errorf("calls %q", got)
		}

		f.fault(errors.New("busy"), false)
		r.api.deleteGracefully("a", 1)
		r.pass(40 * time.Second)
		events = r.api.eventsOf("FailedUnprepareDynamicResources")
		if p := r.pod("a"); finalPhase(p.Status.Phase) || len(events) < 3 || events[0] != "Failed to unprepare dynamic resources: busy" {
			t.Errorf("a pod that holds claims is %s; events %q", p.Status.Phase, events)
		}
		f.fault(nil, false)
		r.pass(20 * time.Second)
		if !r.gone("a") || len(f.Pods()) > 0 {
			t.Errorf("the pod is still there, or holds %v", f.Pods())
		}
	})
}

// A driver hangs while the pod is deleted, and while the kubelet is restarted.
func TestHungClaimDriver(t *testing.T) {
	claimBubble(t, crifake.Config{}, func(r *rig, f *fakeClaims) {
		f.fault(nil, true)
		r.api.create(newPod("a", withClaim))
		r.pass(10 * time.Second)
		r.restart()
		r.pass(10 * time.Second)
		r.api.deleteGracefully("a", 1)
		r.pass(10 * time.Second)
		if got := f.took(); !slices.Equal(got, []string{"prepare uid-a", "prepare uid-a", "unprepare uid-a"}) {
			t.Errorf("calls %q", got)
		}
		f.fault(nil, false)
		r.restart()
		r.pass(10 * time.Second)
		if !r.gone("a") || len(f.Pods()) > 0 {
			t.Errorf("the pod is still there, or holds %v", f.Pods())
		}
	})
}

// The API lost the pod while no kubelet was running, and nothing of it is left but claims.
func TestClaimsOfDeletedPodsAreReleased(t *testing.T) {
	claimBubble(t, crifake.Config{}, func(r *rig, f *fakeClaims) {
		f.set(f.held, "uid-gone", true)
		r.pass(5 * time.Second)
		if got := f.took(); !slices.Equal(got, []string{"unprepare uid-gone"}) {
			t.Errorf("calls %q", got)
		}
	})
}

func TestClaimsAreUnpreparedBeforeAFinalStatus(t *testing.T) {
	claimBubble(t, crifake.Config{}, func(r *rig, f *fakeClaims) {
		r.api.create(newPod("job", withClaim, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
		r.pass(5 * time.Second)
		f.fault(errors.New("busy"), false)
		r.runtime.Kill(r.container("job", "app").ID, 0)
		r.pass(5 * time.Second)
		if phase := r.pod("job").Status.Phase; finalPhase(phase) {
			t.Errorf("the pod is %s before its claims are released", phase)
		}
		f.fault(nil, false)
		r.pass(20 * time.Second)
		if phase := r.pod("job").Status.Phase; phase != corev1.PodSucceeded {
			t.Errorf("the pod is %s", phase)
		}
	})
}

// A runtime that ignores CDI devices would run the container without them.
func TestRuntimesWithoutCDI(t *testing.T) {
	for version, want := range map[string]string{
		"1.6.20~ds1": "CDI devices are not supported by containerd 1.6.20~ds1; 1.7 or later is needed",
		"2.4.2":      "",
	} {
		claimBubble(t, crifake.Config{Containerd: version}, func(r *rig, _ *fakeClaims) {
			r.api.create(newPod("a", withClaim))
			r.pass(5 * time.Second)
			s := r.pod("a").Status.ContainerStatuses[0]
			switch {
			case want == "" && s.State.Running == nil:
				t.Errorf("%s: %+v", version, s.State)
			case want != "" && (s.State.Waiting == nil || s.State.Waiting.Reason != reasonConfigError || !strings.Contains(s.State.Waiting.Message, want)):
				t.Errorf("%s: %+v", version, s.State)
			}
		})
	}
	for config, want := range map[string]bool{"": false, "x": false, "{}": false, `{"enableCDI":true}`: false, `{"enableCDI":false}`: true} {
		if got := cdiDisabled(config); got != want {
			t.Errorf("%s: %v", config, got)
		}
	}
}

// The health of the devices comes and goes with the claims, and stays in the status of a pod
// that has ended.
func TestHealthOfClaimsInTheStatus(t *testing.T) {
	claimBubble(t, crifake.Config{}, func(r *rig, f *fakeClaims) {
		want := func(pod string, want corev1.ResourceHealthStatus) {
			t.Helper()
			s := r.pod(pod).Status.ContainerStatuses[0].AllocatedResourcesStatus
			if len(s) != 1 || s[0].Name != "claim:card" || len(s[0].Resources) != 1 || s[0].Resources[0].Health != want {
				t.Errorf("the container of %s has %v, want a device that is %s", pod, s, want)
			}
		}
		r.api.create(newPod("a", withClaim, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
		r.api.create(newPod("plain"))
		r.pass(20 * time.Second)
		want("a", corev1.ResourceHealthStatusHealthy)
		f.mu.Lock()
		f.sick = true
		f.mu.Unlock()
		r.manager.Wake([]types.UID{"uid-a", "unknown"})
		r.pass(time.Second)
		want("a", corev1.ResourceHealthStatusUnhealthy)
		if s := r.pod("plain").Status.ContainerStatuses[0].AllocatedResourcesStatus; s != nil {
			t.Errorf("a container without claims has %v", s)
		}
		r.runtime.Kill(r.container("a", "app").ID, 1)
		r.pass(20 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodFailed || len(f.Pods()) > 0 {
			t.Fatalf("the pod is %s and holds %v", p.Status.Phase, f.Pods())
		}
		want("a", corev1.ResourceHealthStatusUnhealthy)
	})
}
