package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/resources"
)

// slow gives the steps of a pod's start different times.
func slow(string) time.Duration { return 5 * time.Millisecond }

func TestPodRunsAndIsDeleted(t *testing.T) {
	bubble(t, crifake.Config{Latency: slow}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		p := r.pod("a")
		if p.Status.Phase != corev1.PodRunning || !conditions.IsTrue(p.Status.Conditions, corev1.PodReady) || p.Status.PodIP == "" || p.Status.HostIP != "192.0.2.1" {
			t.Fatalf("status is %+v", p.Status)
		}
		r.api.deleteGracefully("a", 30)
		r.pass(time.Second)
		if !r.gone("a") {
			t.Fatalf("still there: %+v", r.pod("a"))
		}
		want := []string{
			"RunPodSandbox a", "CreateContainer a/app", "StartContainer a/app", "StopContainer a/app",
			"StopPodSandbox a", "RemoveContainer a/app", "RemovePodSandbox a",
		}
		if diff := cmp.Diff(want, r.calls("")); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"patch a Pending", "patch a Running", "patch a Succeeded", "delete a"}, slices.Compact(r.api.writes())); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	bubble(t, crifake.Config{NoEvents: true}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		before := len(r.api.writes())
		r.pass(10 * time.Hour)
		if got := r.api.writes()[before:]; len(got) > 0 {
			t.Errorf("writes: %v", got)
		}
	})
}

func TestCrashLoopBacksOff(t *testing.T) {
	crash := func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{Exits: true, ExitCode: 1} }
	for _, events := range []bool{true, false} {
		bubble(t, crifake.Config{Behave: crash, NoEvents: !events}, func(r *rig) {
			begin := time.Now()
			r.api.create(newPod("a"))
			var started []time.Duration
			seen := map[string]bool{}
			for time.Since(begin) < 25*time.Minute {
				for _, c := range r.runtime.Containers() {
					if !c.Started.IsZero() && !seen[c.ID] {
						seen[c.ID] = true
						started = append(started, c.Started.Sub(begin).Round(5*time.Second))
					}
				}
				r.pass(500 * time.Millisecond)
			}
			var gaps []string
			for i := 1; i < len(started); i++ {
				gaps = append(gaps, (started[i] - started[i-1]).String())
			}
			want := []string{"0s", "10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s", "5m0s"}
			if diff := cmp.Diff(want, gaps[:min(len(gaps), len(want))]); diff != "" {
				t.Errorf("events %v: gaps between starts (-want +got):\n%s", events, diff)
			}
			s := r.pod("a").Status.ContainerStatuses[0]
			if w := s.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || w.Message != "back-off 5m0s restarting failed container=app pod=a_default(uid-a)" {
				t.Errorf("state is %+v", s.State)
			}
			if last := s.LastTerminationState.Terminated; last == nil || last.ExitCode != 1 || last.Reason != "Error" {
				t.Errorf("last state is %+v", s.LastTerminationState)
			}
			if int(s.RestartCount) != len(started)-1 {
				t.Errorf("restart count %d after %d starts", s.RestartCount, len(started))
			}
			if n := len(r.runtime.Containers()); n > 2 {
				t.Errorf("%d containers are kept", n)
			}
			if !slices.Contains(r.api.eventsOf("BackOff"), "Back-off restarting failed container app in pod a_default(uid-a)") {
				t.Error("no BackOff event")
			}
		})
	}
}

func TestBackOffSurvivesARestartOfTheKubelet(t *testing.T) {
	crash := func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{Exits: true, ExitCode: 1} }
	bubble(t, crifake.Config{Behave: crash}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(35 * time.Second) // started at 0, 0, 10, 30: the next is at 70
		before := r.container("a", "app").Attempt
		r.restart()
		r.pass(30 * time.Second)
		if got := r.container("a", "app").Attempt; got != before {
			t.Errorf("started again at %d instead of waiting", got)
		}
		r.pass(10 * time.Second)
		if got := r.container("a", "app").Attempt; got != before+1 {
			t.Errorf("attempt %d, want %d", got, before+1)
		}
	})
}

func TestKilledContainerComesBackAtOnce(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Minute)
		r.runtime.Kill(r.container("a", "app").ID, 137)
		r.pass(2 * time.Second)
		s := r.pod("a").Status.ContainerStatuses[0]
		if s.State.Running == nil || s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || !s.Ready {
			t.Errorf("status is %+v", s)
		}
	})
}

func TestKubeletRestartRestartsNothing(t *testing.T) {
	probed := func(p *corev1.Pod) {
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ok"}}}, PeriodSeconds: 10}
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].StartupProbe = probe, probe
	}
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", probed))
		r.api.create(newPod("b", withInit("first")))
		r.pass(time.Minute)
		if !conditions.IsTrue(r.pod("a").Status.Conditions, corev1.PodReady) {
			t.Fatal("a is not ready")
		}
		calls, writes := len(r.runtime.Calls()), len(r.api.writes())
		for range 3 {
			r.restart()
			r.pass(time.Second)
		}
		if got := r.calls("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "Remove"); len(got) != 6 {
			t.Errorf("calls after the restarts: %v", r.runtime.Calls()[calls:])
		}
		if got := r.api.writes()[writes:]; len(got) > 0 {
			t.Errorf("writes after the restarts: %v (readiness must be kept)", got)
		}
	})
}

func withInit(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, n := range names {
			p.Spec.InitContainers = append(p.Spec.InitContainers, newContainer(n))
		}
	}
}

// exits scripts containers by name: they exit with a code and then run.
func exits(codes map[string]int32) func(crifake.Start) crifake.Behaviour {
	return func(s crifake.Start) crifake.Behaviour {
		code, ok := codes[s.Container]
		if !ok {
			return crifake.Behaviour{}
		}
		return crifake.Behaviour{ExitAfter: time.Second, ExitCode: code}
	}
}

func TestInitContainersRunInOrder(t *testing.T) {
	bubble(t, crifake.Config{Behave: exits(map[string]int32{"one": 0, "two": 0})}, func(r *rig) {
		r.api.create(newPod("a", withInit("one", "two")))
		r.pass(500 * time.Millisecond)
		p := r.pod("a")
		if c := conditions.Find(p.Status.Conditions, corev1.PodInitialized); c.Status != corev1.ConditionFalse || c.Message != "containers with incomplete status: [one two]" {
			t.Errorf("condition is %+v", c)
		}
		if w := p.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "PodInitializing" {
			t.Errorf("app is %+v", p.Status.ContainerStatuses[0].State)
		}
		r.pass(5 * time.Second)
		want := []string{"StartContainer a/one", "StartContainer a/two", "StartContainer a/app"}
		if diff := cmp.Diff(want, r.calls("StartContainer")); diff != "" {
			t.Errorf("starts (-want +got):\n%s", diff)
		}
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning || !conditions.IsTrue(p.Status.Conditions, corev1.PodInitialized) || !p.Status.InitContainerStatuses[1].Ready {
			t.Errorf("status is %+v", p.Status)
		}
	})
}

// A worker that retried at once would never let virtual time advance.
func TestInitContainersThatCannotStartWait(t *testing.T) {
	refuse := func(op string) func(string) error {
		n := 0
		return func(called string) error {
			if called == op {
				if n++; n < 4 {
					return status.Error(grpccodes.Unavailable, "not now")
				}
			}
			return nil
		}
	}
	for name, tc := range map[string]struct {
		cfg    crifake.Config
		reason string // of waiting, after 5 s
		phase  corev1.PodPhase
	}{
		"no such image": {
			cfg:    crifake.Config{Pull: func(string, *runtimeapi.AuthConfig) error { return status.Error(grpccodes.NotFound, "no such image") }},
			reason: "ErrImagePull", phase: corev1.PodPending,
		},
		"not made":    {cfg: crifake.Config{Images: []string{"app:1", "init:1"}, Fault: refuse("CreateContainer")}, phase: corev1.PodRunning},
		"not started": {cfg: crifake.Config{Images: []string{"app:1", "init:1"}, Fault: refuse("StartContainer")}, phase: corev1.PodRunning},
	} {
		tc.cfg.Behave = func(s crifake.Start) crifake.Behaviour { return crifake.Behaviour{Exits: s.Container == "init"} }
		bubble(t, tc.cfg, func(r *rig) {
			r.api.create(newPod("a", func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1", ImagePullPolicy: corev1.PullIfNotPresent}}
			}))
			r.pass(10 * time.Second)
			st := r.pod("a").Status
			reason := ""
			if w := st.InitContainerStatuses[0].State.Waiting; w != nil {
				reason = w.Reason
			}
			if st.Phase != tc.phase || reason != tc.reason {
				t.Errorf("%s: %s, init container waits for %q", name, st.Phase, reason)
			}
		})
	}
}

func TestPodsEnd(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		policy       corev1.RestartPolicy
		codes        map[string]int32
		init         []string
		phase        corev1.PodPhase
		starts       int
	}{
		{"NeverDone", "exit 0 is success", corev1.RestartPolicyNever, map[string]int32{"app": 0}, nil, corev1.PodSucceeded, 1},
		{"NeverFailed", "any other exit is failure", corev1.RestartPolicyNever, map[string]int32{"app": 3}, nil, corev1.PodFailed, 1},
		{"OnFailureDone", "exit 0 is not started again", corev1.RestartPolicyOnFailure, map[string]int32{"app": 0}, nil, corev1.PodSucceeded, 1},
		{"OnFailureLoops", "a failure is", corev1.RestartPolicyOnFailure, map[string]int32{"app": 1}, nil, corev1.PodRunning, 3},
		{"InitFailed", "a failed init container ends a pod that never restarts", corev1.RestartPolicyNever, map[string]int32{"i": 1}, []string{"i", "j"}, corev1.PodFailed, 1},
		{"InitLoops", "or is started again", corev1.RestartPolicyAlways, map[string]int32{"i": 1}, []string{"i"}, corev1.PodPending, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, crifake.Config{Behave: exits(c.codes)}, func(r *rig) {
				r.api.create(newPod("a", withInit(c.init...), func(p *corev1.Pod) { p.Spec.RestartPolicy = c.policy }))
				r.pass(20 * time.Second)
				p := r.pod("a")
				if p.Status.Phase != c.phase {
					t.Errorf("phase is %s, want %s: %s", p.Status.Phase, c.phase, c.reason)
				}
				if got := len(r.calls("StartContainer")); got != c.starts {
					t.Errorf("%d starts, want %d: %s", got, c.starts, c.reason)
				}
				if c.phase == corev1.PodFailed || c.phase == corev1.PodSucceeded {
					if len(r.calls("StopPodSandbox")) == 0 {
						t.Error("its network was not given back")
					}
					status := p.Status.DeepCopy()
					r.restart()
					r.pass(time.Minute)
					if diff := cmp.Diff(status, &r.pod("a").Status); diff != "" {
						t.Errorf("a restart changed the status (-before +after):\n%s", diff)
					}
				}
				if c.name == "InitFailed" {
					if w := p.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "PodInitializing" {
						t.Errorf("app is %+v", p.Status.ContainerStatuses[0].State)
					}
				}
				r.api.deleteGracefully("a", 1)
				r.pass(5 * time.Second)
				if !r.gone("a") || len(r.runtime.Containers()) > 0 || r.runtime.Sandboxes() > 0 {
					t.Errorf("left: %v", r.runtime.Containers())
				}
			})
		})
	}
}

func TestPreStopHookThenTheRestOfTheGracePeriod(t *testing.T) {
	var hooked atomic.Value
	cfg := crifake.Config{
		Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{Deaf: true} },
		Exec: func(_ context.Context, _ crifake.Container, command []string) crifake.ExecResult {
			time.Sleep(4 * time.Second)
			hooked.Store(time.Now())
			return crifake.ExecResult{}
		},
	}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("a", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}}
		}))
		r.pass(time.Second)
		asked := time.Now()
		r.api.deleteGracefully("a", 10)
		r.pass(9 * time.Second)
		if r.gone("a") {
			t.Error("gone before its grace period")
		}
		r.pass(2 * time.Second)
		if !r.gone("a") {
			t.Errorf("not gone after its grace period: %v", r.runtime.Calls())
		}
		if d := hooked.Load().(time.Time).Sub(asked); d != 4*time.Second {
			t.Errorf("hook ended after %v", d)
		}
	})
}

func TestShorterGracePeriodTakesEffect(t *testing.T) {
	deaf := func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{Deaf: true} }
	bubble(t, crifake.Config{Behave: deaf}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		r.api.deleteGracefully("a", 600)
		r.pass(5 * time.Second)
		r.api.deleteGracefully("a", 2)
		r.pass(3 * time.Second)
		if !r.gone("a") {
			t.Error("the longer grace period is still waited for")
		}
	})
}

func TestForceDeletedPodIsCleanedUp(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		r.api.drop("a")
		r.pass(time.Minute)
		if r.runtime.Sandboxes() != 0 {
			t.Error("the sandbox is left")
		}
	})
}

// The scheduler does not count a force-deleted pod, whose containers still run. A pod
// that comes in its place waits for them.
func TestAPodWaitsForTheShareOfAForceDeletedOne(t *testing.T) {
	whole := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	}
	deaf := func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{Deaf: true} }
	bubble(t, crifake.Config{Behave: deaf}, func(r *rig) {
		r.api.create(newPod("first", whole))
		r.pass(time.Second)
		r.api.drop("first")
		r.api.create(newPod("second", whole))
		r.pass(5 * time.Second)
		if p := r.pod("second"); p.Status.Phase != corev1.PodPending || len(r.calls("RunPodSandbox")) != 1 {
			t.Errorf("beside the first one: %s %s", p.Status.Phase, p.Status.Message)
		}
		r.pass(time.Minute)
		if p := r.pod("second"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("after it: %s %s", p.Status.Phase, p.Status.Message)
		}
	})
}

func TestPodDeletedWhileTheKubeletWasDown(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.api.create(newPod("b"))
		r.pass(time.Second)
		r.stop()
		r.api.drop("a")
		r.start()
		r.pass(2 * time.Minute)
		if got := len(r.runtime.Containers()); got != 1 || r.runtime.Sandboxes() != 1 {
			t.Errorf("%d containers left: %v", got, r.runtime.Calls())
		}
		if p := r.pod("b"); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Error("b was touched")
		}
	})
}

func TestFinalizersKeepAPodWithoutFurtherDeletes(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/f"} }))
		r.pass(time.Second)
		r.api.deleteGracefully("a", 1)
		r.pass(time.Hour)
		n := 0
		for _, l := range r.api.writes() {
			if l == "delete a" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("deleted %d times: %v", n, r.api.writes())
		}
		if len(r.runtime.Containers()) > 0 {
			t.Error("containers are left")
		}
	})
}

func TestMissingConfigMapIsWaitedFor(t *testing.T) {
	needs := func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	}
	mounts := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, DefaultMode: ptr(int32(0o644)),
		}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("env", needs))
		r.api.create(newPod("volume", mounts))
		r.pass(5 * time.Second)
		w := r.pod("env").Status.ContainerStatuses[0].State.Waiting
		if w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, `configmap`) {
			t.Errorf("env waits for %+v", w)
		}
		if w := r.pod("volume").Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "ContainerCreating" {
			t.Errorf("volume waits for %+v", w)
		}
		if len(r.api.eventsOf("FailedMount")) == 0 {
			t.Error("no FailedMount event")
		}
		r.api.mu.Lock()
		r.api.configMaps["settings"] = &corev1.ConfigMap{Data: map[string]string{"A": "1"}}
		r.api.mu.Unlock()
		r.pass(11 * time.Second)
		for _, name := range []string{"env", "volume"} {
			if p := r.pod(name); p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("%s is %+v", name, p.Status)
			}
		}
	})
}

func TestActiveDeadline(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(10 * time.Second)
		r.api.change("a", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(15)) })
		r.pass(4 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Fatalf("too early: %+v", p.Status)
		}
		r.pass(3 * time.Second)
		p := r.pod("a")
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "DeadlineExceeded" || p.Status.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("status is %+v", p.Status)
		}
	})
}

// The start time of a pod is in the future because the clock was set back while no kubelet
// ran: the pod may run as long as its deadline says, from now on.
func TestActiveDeadlineWhenTheClockWasSetBack(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", func(p *corev1.Pod) {
			p.Spec.ActiveDeadlineSeconds = ptr(int64(15))
			p.Status.StartTime = &metav1.Time{Time: time.Now().Add(time.Hour)}
		}))
		r.pass(10 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Fatalf("too early: %+v", p.Status)
		}
		r.pass(8 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
			t.Errorf("status is %+v", p.Status)
		}
	})
}

func TestPullErrors(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	cfg := crifake.Config{Images: []string{}, Pull: func(string, *runtimeapi.AuthConfig) error {
		if broken.Load() {
			return errors.New("no such image")
		}
		return nil
	}}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("a"))
		r.api.create(newPod("never", func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullNever }))
		reason := func(name string) string {
			if w := r.pod(name).Status.ContainerStatuses[0].State.Waiting; w != nil {
				return w.Reason
			}
			return ""
		}
		r.pass(500 * time.Millisecond)
		if got := reason("a"); got != "ErrImagePull" {
			t.Errorf("first it waits for %s", got)
		}
		if got := reason("never"); got != "ErrImageNeverPull" {
			t.Errorf("never waits for %s", got)
		}
		r.pass(5 * time.Second)
		w := r.pod("a").Status.ContainerStatuses[0].State.Waiting
		if w == nil || w.Reason != "ImagePullBackOff" || w.Message != `Back-off pulling image "app:1": ErrImagePull: no such image` {
			t.Errorf("then for %+v", w)
		}
		r.pass(2 * time.Minute)
		if got := len(r.calls("PullImage")); got != 4 { // at 0, 10, 30, 70
			t.Errorf("%d pulls in two minutes", got)
		}
		broken.Store(false)
		r.pass(time.Minute)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("status is %+v", p.Status)
		}
	})
}

// codes are exit codes by command; a test can change them.
type codes struct{ m sync.Map }

func (c *codes) set(command string, code int32) { c.m.Store(command, code) }
func (c *codes) get(command string) int32 {
	v, _ := c.m.Load(command)
	code, _ := v.(int32)
	return code
}

func TestProbes(t *testing.T) {
	var answer codes // by command
	cfg := crifake.Config{Exec: func(_ context.Context, _ crifake.Container, command []string) crifake.ExecResult {
		return crifake.ExecResult{ExitCode: answer.get(command[0]), Stdout: []byte("because")}
	}}
	probe := func(name string, initial, period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{name}}},
			InitialDelaySeconds: initial, PeriodSeconds: period, FailureThreshold: failures, SuccessThreshold: 1, TimeoutSeconds: 1,
		}
	}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("a", func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = probe("startup", 0, 2, 10), probe("ready", 5, 1, 3), probe("live", 0, 2, 3)
		}))
		answer.set("startup", 1)
		status := func() corev1.ContainerStatus { return r.pod("a").Status.ContainerStatuses[0] }
		r.pass(3500 * time.Millisecond)
		if s := status(); *s.Started || s.Ready {
			t.Errorf("started without its startup probe: %+v", s)
		}
		answer.set("startup", 0)
		r.pass(time.Second)
		if s := status(); !*s.Started || s.Ready {
			t.Errorf("after startup: %+v, want started, and not ready before 5 s", s)
		}
		r.pass(time.Second)
		if s := status(); !s.Ready {
			t.Errorf("not ready: %+v", s)
		}
		answer.set("ready", 1)
		r.pass(2 * time.Second)
		if s := status(); !s.Ready {
			t.Error("two failures are not three")
		}
		r.pass(2 * time.Second)
		if s := status(); s.Ready || s.RestartCount != 0 {
			t.Errorf("want not ready, not restarted: %+v", s)
		}
		if got := r.api.eventsOf("Unhealthy"); !slices.Contains(got, "Readiness probe failed: because") {
			t.Errorf("events: %v", got)
		}
		answer.set("ready", 0)
		answer.set("live", 1)
		r.pass(7 * time.Second)
		answer.set("live", 0)
		r.pass(10 * time.Second)
		if s := status(); s.RestartCount != 1 || !s.Ready {
			t.Errorf("after a failed liveness probe: %+v", s)
		}
		if got := r.api.eventsOf("Killing"); !slices.Contains(got, "Container app failed liveness probe, will be restarted") {
			t.Errorf("events: %v", got)
		}
	})
}

func TestReadinessGates(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}}
		}))
		r.pass(time.Second)
		p := r.pod("a")
		c := conditions.Find(p.Status.Conditions, corev1.PodReady)
		if c.Reason != "ReadinessGatesNotReady" || c.Message != `corresponding condition of pod readiness gate "example.com/lb" does not exist.` {
			t.Errorf("condition is %+v", c)
		}
		r.api.change("a", func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/lb", Status: corev1.ConditionTrue})
		})
		r.pass(time.Second)
		if p := r.pod("a"); !conditions.IsTrue(p.Status.Conditions, corev1.PodReady) || !conditions.IsTrue(p.Status.Conditions, "example.com/lb") {
			t.Errorf("conditions are %+v", p.Status.Conditions)
		}
	})
}

func TestAPIServerAbsence(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		r.api.mu.Lock()
		r.api.down = true
		r.api.mu.Unlock()
		r.runtime.Kill(r.container("a", "app").ID, 1)
		r.pass(5 * time.Minute)
		if c := r.container("a", "app"); c.Attempt != 1 || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the container was not started again: %+v", c)
		}
		r.api.mu.Lock()
		r.api.down = false
		r.api.mu.Unlock()
		r.pass(11 * time.Second)
		if s := r.pod("a").Status.ContainerStatuses[0]; s.RestartCount != 1 || !s.Ready {
			t.Errorf("the status is lost: %+v", s)
		}
	})
}

func TestRuntimeAbsence(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Minute)
		writes := len(r.api.writes())
		r.runtime.SetDown(true)
		r.api.create(newPod("b"))
		r.pass(time.Minute)
		r.runtime.SetDown(false)
		r.pass(15 * time.Second)
		if p := r.pod("b"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("b is %+v", p.Status)
		}
		for _, w := range r.api.writes()[writes:] {
			if strings.HasPrefix(w, "patch a") {
				t.Errorf("a's status was written: %s", w)
			}
		}
	})
}

func TestDeadSandboxIsReplaced(t *testing.T) {
	bubble(t, crifake.Config{Behave: exits(map[string]int32{"i": 0})}, func(r *rig) {
		r.api.create(newPod("a", withInit("i")))
		r.pass(time.Minute)
		ip := r.pod("a").Status.PodIP
		r.runtime.KillSandbox("uid-a")
		r.pass(30 * time.Second)
		p := r.pod("a")
		if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == ip || p.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("status is %+v", p.Status)
		}
		if got := r.calls("StartContainer a/i"); len(got) != 2 {
			t.Error("init containers did not run again in the new sandbox")
		}
		r.runtime.Kill(r.container("a", "app").ID, 1) // its predecessor is not needed any more
		r.pass(time.Minute)
		if r.runtime.Sandboxes() != 1 {
			t.Errorf("%d sandboxes", r.runtime.Sandboxes())
		}
	})
}

func TestImageChangeRestartsTheContainer(t *testing.T) {
	for name, c := range map[string]struct {
		policy  corev1.RestartPolicy
		restart bool // of the kubelet, during which the container exits
	}{
		"Always":                   {policy: corev1.RestartPolicyAlways},
		"OnFailure":                {policy: corev1.RestartPolicyOnFailure},
		"Never":                    {policy: corev1.RestartPolicyNever},
		"Never, restarted kubelet": {policy: corev1.RestartPolicyNever, restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			slow := crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{TermDelay: 2 * time.Second} }}
			bubble(t, slow, func(r *rig) {
				r.api.create(newPod("a", func(p *corev1.Pod) { p.Spec.RestartPolicy = c.policy }))
				r.pass(time.Minute)
				r.api.change("a", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2"; p.Generation = 2 })
				if c.restart {
					r.pass(time.Second)
					r.stop()
					if _, err := r.runtime.StopContainer(context.Background(), &runtimeapi.StopContainerRequest{ContainerId: r.container("a", "app").ID, Timeout: 30}); err != nil {
						r.t.Fatal(err)
					}
					r.start()
				}
				r.pass(5 * time.Second)
				p := r.pod("a")
				if s := p.Status.ContainerStatuses[0]; p.Status.Phase != corev1.PodRunning || s.RestartCount != 1 || r.container("a", "app").Config.Image.UserSpecifiedImage != "app:2" || p.Status.ObservedGeneration != 2 {
					r.t.Errorf("status is %+v", p.Status)
				}
			})
		})
	}
}

func TestNodeRefusesPods(t *testing.T) {
	cpu := func(amount string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
		}
	}
	port := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
	}
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("first", cpu("3"), port))
		r.pass(time.Second)
		for _, c := range []struct {
			name, reason, message string
			change                func(*corev1.Pod)
		}{
			{"big", "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000", cpu("2")},
			{"port", "NodePorts", "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports", port},
			{"selector", "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }},
		} {
			r.api.create(newPod(c.name, c.change))
			r.pass(time.Second)
			p := r.pod(c.name)
			if p.Status.Phase != corev1.PodFailed || p.Status.Reason != c.reason || p.Status.Message != c.message {
				t.Errorf("%s: %+v", c.name, p.Status)
			}
		}
		r.api.deleteGracefully("first", 1)
		r.pass(2 * time.Second)
		r.api.create(newPod("second", cpu("4"), port))
		r.pass(time.Second)
		if p := r.pod("second"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("the share was not given back: %+v", p.Status)
		}
		r.restart()
		r.pass(time.Minute)
		if p := r.pod("second"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("refused after a restart: %+v", p.Status)
		}
	})
}

// The scheduler reuses a pod's share as soon as the API has the final phase, also while
// the node still removes the pod's volumes and cgroup.
func TestAnEndedPodGivesBackItsShareBeforeItsStatusIsWritten(t *testing.T) {
	whole := func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, crifake.Config{Behave: exits(map[string]int32{"app": 0})})
		r.tweak = func(cfg *Config) { cfg.Cgroups = busyCgroups{} }
		r.start()
		defer func() { r.stop() }()
		for _, name := range []string{"first", "second"} {
			r.api.create(newPod(name, whole))
			r.pass(10 * time.Second)
			if p := r.pod(name); p.Status.Phase != corev1.PodSucceeded {
				t.Errorf("%s: %s %s", name, p.Status.Phase, p.Status.Message)
			}
		}
	})
}

// busyCgroups cannot be removed.
type busyCgroups struct{ resources.None }

func (busyCgroups) Remove(context.Context, types.UID) error { return syscall.EBUSY }

func TestStatusChangedByAnotherClient(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		r.api.change("a", func(p *corev1.Pod) {
			conditions.Find(p.Status.Conditions, corev1.PodReady).Status = corev1.ConditionFalse
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "DisruptionTarget", Status: corev1.ConditionTrue})
		})
		r.pass(time.Second)
		if p := r.pod("a"); !conditions.IsTrue(p.Status.Conditions, corev1.PodReady) || !conditions.IsTrue(p.Status.Conditions, "DisruptionTarget") {
			t.Errorf("conditions are %+v", p.Status.Conditions)
		}
	})
}

func TestPostStartHookHoldsUpTheNextContainer(t *testing.T) {
	cfg := crifake.Config{Exec: func(ctx context.Context, c crifake.Container, command []string) crifake.ExecResult {
		time.Sleep(3 * time.Second)
		return crifake.ExecResult{ExitCode: map[string]int32{"bad": 1}[command[0]]}
	}}
	hook := func(command string) *corev1.Lifecycle {
		return &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
	}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("a", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = hook("good")
			p.Spec.Containers = append(p.Spec.Containers, newContainer("second"))
		}))
		r.api.create(newPod("b", func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = hook("bad") }))
		r.pass(2 * time.Second)
		if len(r.calls("StartContainer a/second")) != 0 {
			t.Error("second did not wait")
		}
		r.pass(2 * time.Second)
		if len(r.calls("StartContainer a/second")) != 1 {
			t.Error("second was not started")
		}
		if len(r.calls("StopContainer b/app")) == 0 || !slices.Contains(r.api.eventsOf("FailedPostStartHook"), "PostStartHook failed") {
			t.Error("a failed hook must kill its container")
		}
	})
}

// endpoints is a cluster whose proxies take time to apply a change.
type endpoints struct {
	mu    sync.Mutex
	slice *discoveryv1.EndpointSlice
	lease *coordinationv1.Lease
}

func (e *endpoints) Slices(context.Context, string) ([]*discoveryv1.EndpointSlice, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return []*discoveryv1.EndpointSlice{e.slice.DeepCopy()}, nil
}
func (e *endpoints) Slice(context.Context, string, string) (*discoveryv1.EndpointSlice, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.slice.DeepCopy(), nil
}
func (e *endpoints) Proxies(context.Context) ([]*coordinationv1.Lease, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return []*coordinationv1.Lease{e.lease.DeepCopy()}, nil
}

func TestPodIsStoppedOnlyWhenNoProxySendsItAnything(t *testing.T) {
	for _, c := range []struct {
		name    string
		applied time.Duration // when the proxy has applied the change; 0: never
		want    time.Duration // when SIGTERM comes
	}{
		{"Applied", 1500 * time.Millisecond, 1500*time.Millisecond + settleTime},
		{"NeverApplied", 0, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, crifake.Config{}, func(r *rig) {
				e := &endpoints{
					slice: &discoveryv1.EndpointSlice{
						ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", ResourceVersion: "10"},
						Endpoints:  []discoveryv1.Endpoint{{TargetRef: &corev1.ObjectReference{UID: types.UID("uid-a")}}},
					},
					lease: &coordinationv1.Lease{
						ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationApplied: "10"}},
						Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr(int32(40)), RenewTime: ptr(metav1.NowMicro())},
					},
				}
				r.stop()
				r.tweak = func(cfg *Config) { cfg.Endpoints = e }
				r.start()
				r.api.create(newPod("a"))
				r.pass(time.Second)
				asked := time.Now()
				r.api.deleteGracefully("a", 30)
				r.pass(time.Second)
				e.mu.Lock()
				e.slice.Endpoints[0].Conditions.Terminating, e.slice.ResourceVersion = ptr(true), "11"
				e.mu.Unlock()
				for len(r.calls("StopContainer")) == 0 && time.Since(asked) < time.Minute {
					if c.applied > 0 && time.Since(asked) >= c.applied {
						e.mu.Lock()
						e.lease.Annotations[AnnotationApplied] = "11"
						e.mu.Unlock()
					}
					r.pass(50 * time.Millisecond)
				}
				if got := time.Since(asked); got < c.want || got > c.want+300*time.Millisecond {
					t.Errorf("stopped after %v, want %v", got, c.want)
				}
				r.pass(time.Second)
				if !r.gone("a") {
					t.Error("not gone")
				}
			})
		})
	}
}

func TestManyPodsAtOnce(t *testing.T) {
	bubble(t, crifake.Config{Latency: slow}, func(r *rig) {
		for i := range 100 {
			r.api.create(newPod(fmt.Sprint("p", i)))
		}
		r.pass(5 * time.Second)
		for i := range 100 {
			if p := r.pod(fmt.Sprint("p", i)); !conditions.IsTrue(p.Status.Conditions, corev1.PodReady) {
				t.Fatalf("%s is %+v", p.Name, p.Status)
			}
			r.api.deleteGracefully(fmt.Sprint("p", i), 30)
		}
		r.pass(5 * time.Second)
		if n := r.runtime.Sandboxes(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
}

func TestAStartThatFailedOnceIsTriedAgainWithTheSameContainer(t *testing.T) {
	var failed atomic.Bool
	cfg := crifake.Config{Fault: func(op string) error {
		if op == "StartContainer" && !failed.Swap(true) {
			return errors.New("the disk is full")
		}
		return nil
	}}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(100 * time.Millisecond)
		if w := r.pod("a").Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "RunContainerError" || w.Message != "the disk is full" {
			t.Errorf("waiting for %+v", w)
		}
		r.pass(5 * time.Second)
		if s := r.pod("a").Status.ContainerStatuses[0]; s.RestartCount != 0 || s.State.Running == nil || len(r.calls("CreateContainer")) != 1 {
			t.Errorf("status %+v, calls %v", s, r.runtime.Calls())
		}
	})
}

func TestSandboxErrorsAreReportedAndRetried(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	cfg := crifake.Config{Fault: func(op string) error {
		if op == "RunPodSandbox" && broken.Load() {
			return errors.New("no network")
		}
		return nil
	}}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(30 * time.Second)
		if got := r.api.eventsOf("FailedCreatePodSandBox"); len(got) < 3 || got[0] != "Failed to create pod sandbox: no network" {
			t.Errorf("events: %v", got)
		}
		broken.Store(false)
		r.pass(11 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("status is %+v", p.Status)
		}
	})
}

func TestPodDeletedWhileItsSandboxIsMade(t *testing.T) {
	cfg := crifake.Config{Latency: func(op string) time.Duration {
		return map[string]time.Duration{"RunPodSandbox": time.Minute}[op]
	}}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(10 * time.Second)
		r.api.deleteGracefully("a", 30)
		r.pass(5 * time.Second)
		if !r.gone("a") || r.runtime.Sandboxes() != 0 {
			t.Errorf("left: %v", r.runtime.Calls())
		}
	})
}

// A container that is starting cannot be removed: the worker waits for the start.
func TestPodDeletedWhileItsContainerIsStarted(t *testing.T) {
	cfg := crifake.Config{Latency: func(op string) time.Duration {
		if op == "StartContainer" {
			return time.Second
		}
		return 0
	}}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("p"))
		r.pass(500 * time.Millisecond)
		r.api.deleteGracefully("p", 30)
		r.pass(2 * time.Second)
		if !r.gone("p") {
			t.Errorf("still there: %+v", r.pod("p").Status)
		}
		want := []string{"StartContainer p/app", "StopContainer p/app", "StopPodSandbox p", "RemoveContainer p/app", "RemovePodSandbox p"}
		if diff := cmp.Diff(want, r.calls("StartContainer", "Stop", "Remove")); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestANewPodWithAnOldName(t *testing.T) {
	bubble(t, crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{TermDelay: 5 * time.Second} }}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		r.api.drop("a")
		r.api.create(newPod("a", func(p *corev1.Pod) { p.UID = "uid-2" }))
		r.pass(time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning || p.UID != "uid-2" {
			t.Errorf("the new one is %+v", p.Status)
		}
		r.pass(10 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning || r.runtime.Sandboxes() != 1 {
			t.Errorf("when the old one is gone, the new one is %+v", p.Status)
		}
	})
}

// No pod is started before all pods of the API are known: another one may have the
// resources already that it would get.
func TestPodsStartOnceAllAreKnown(t *testing.T) {
	bubbleWith(t, crifake.Config{}, func(r *rig) { r.unsynced = true }, func(r *rig) {
		r.api.create(newPod("a"))
		r.api.create(newPod("b"))
		r.pass(time.Minute)
		r.api.drop("b")
		r.pass(time.Minute)
		if calls := r.calls("RunPodSandbox"); len(calls) > 0 {
			r.t.Errorf("too early: %v", calls)
		}
		r.manager.Synced()
		r.pass(time.Minute)
		if calls := r.calls("RunPodSandbox"); len(calls) != 1 || r.pod("a").Status.Phase != corev1.PodRunning {
			r.t.Errorf("%v, the pod is %s", calls, r.pod("a").Status.Phase)
		}
	})
}
