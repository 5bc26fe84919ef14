package pods

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri/crifake"
)

// withSidecars adds init containers; those whose names begin with s are sidecars.
func withSidecars(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, n := range names {
			c := newContainer(n)
			if strings.HasPrefix(n, "s") {
				c.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
}

func execProbe(command string) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
}

func TestSidecarsStartInOrderAndStopInReverse(t *testing.T) {
	up := time.Now().Add(time.Hour)
	cfg := crifake.Config{
		Behave: func(s crifake.Start) crifake.Behaviour {
			if s.Container == "one" {
				return crifake.Behaviour{ExitAfter: time.Second}
			}
			return crifake.Behaviour{TermDelay: 2 * time.Second}
		},
		Exec: func(context.Context, crifake.Container, []string) crifake.ExecResult {
			if time.Now().Before(up) {
				return crifake.ExecResult{ExitCode: 1}
			}
			return crifake.ExecResult{}
		},
	}
	bubble(t, cfg, func(r *rig) {
		up = time.Now().Add(5 * time.Second)
		r.api.create(newPod("a", withSidecars("s1", "one", "s2"), func(p *corev1.Pod) {
			p.Spec.InitContainers[0].StartupProbe = execProbe("up")
			p.Spec.InitContainers[0].StartupProbe.FailureThreshold = 100
		}))
		r.pass(4 * time.Second)
		if got := r.calls("StartContainer"); len(got) != 1 {
			t.Errorf("before the first sidecar has started: %v", got)
		}
		s := r.pod("a").Status
		if c := conditions.Find(s.Conditions, corev1.PodInitialized); s.Phase != corev1.PodPending || c.Message != "containers with incomplete status: [s1 one s2]" {
			t.Errorf("%s, %+v", s.Phase, c)
		}
		if w := s.InitContainerStatuses[1].State.Waiting; w == nil || w.Reason != "PodInitializing" {
			t.Errorf("the second init container is %+v", s.InitContainerStatuses[1].State)
		}
		r.pass(10 * time.Second)
		want := []string{"StartContainer a/s1", "StartContainer a/one", "StartContainer a/s2", "StartContainer a/app"}
		if diff := cmp.Diff(want, r.calls("StartContainer")); diff != "" {
			t.Errorf("starts (-want +got):\n%s", diff)
		}
		s = r.pod("a").Status
		if s.Phase != corev1.PodRunning || !s.InitContainerStatuses[0].Ready || !*s.InitContainerStatuses[0].Started || !conditions.IsTrue(s.Conditions, corev1.PodReady) {
			t.Errorf("status is %+v", s)
		}
		r.api.deleteGracefully("a", 30)
		r.pass(7 * time.Second)
		if !r.gone("a") {
			t.Error("the pod is not gone")
		}
		stops := r.calls("StopContainer")
		if diff := cmp.Diff([]string{"StopContainer a/app", "StopContainer a/s2", "StopContainer a/s1"}, stops); diff != "" {
			t.Errorf("stops (-want +got):\n%s", diff)
		}
	})
}

// Sidecars that wait for a container which ignores SIGTERM get the minimal grace period.
func TestSidecarsWaitForNoLongerThanTheGracePeriod(t *testing.T) {
	deaf := func(s crifake.Start) crifake.Behaviour { return crifake.Behaviour{Deaf: s.Container == "app"} }
	bubble(t, crifake.Config{Behave: deaf}, func(r *rig) {
		r.api.create(newPod("a", withSidecars("s1")))
		r.pass(time.Second)
		asked := time.Now()
		r.api.deleteGracefully("a", 10)
		r.pass(9 * time.Second)
		if got := r.calls("StopContainer"); len(got) != 1 {
			t.Errorf("the sidecar did not wait: %v", got)
		}
		r.pass(2 * time.Second)
		if !r.gone("a") {
			t.Errorf("not gone %v after the deletion", time.Since(asked))
		}
	})
}

func TestSidecarsRestartWhateverThePodsPolicyAndDoNotKeepItAlive(t *testing.T) {
	cfg := crifake.Config{Behave: func(s crifake.Start) crifake.Behaviour {
		switch {
		case s.Container == "app":
			return crifake.Behaviour{ExitAfter: time.Minute}
		case s.Container == "s1" && s.Attempt == 0:
			return crifake.Behaviour{ExitAfter: 5 * time.Second}
		}
		return crifake.Behaviour{TermDelay: 3 * time.Second}
	}}
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
		bubble(t, cfg, func(r *rig) {
			r.api.create(newPod("a", withSidecars("s1"), func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }))
			r.pass(10 * time.Second)
			s := r.pod("a").Status
			if c := s.InitContainerStatuses[0]; c.RestartCount != 1 || c.State.Running == nil || s.Phase != corev1.PodRunning {
				t.Errorf("%s: after its exit the sidecar is %+v", policy, c)
			}
			r.pass(51 * time.Second)
			if s := r.pod("a").Status; s.Phase != corev1.PodRunning {
				t.Errorf("%s: the pod is %s while its sidecar stops", policy, s.Phase)
			}
			r.pass(5 * time.Second)
			if s := r.pod("a").Status; s.Phase != corev1.PodSucceeded {
				t.Errorf("%s: the pod is %s, sidecar %+v", policy, s.Phase, s.InitContainerStatuses[0].State)
			}
		})
	}
}

func TestSidecarIsProbed(t *testing.T) {
	var broken, unready atomic.Bool
	cfg := crifake.Config{Exec: func(_ context.Context, _ crifake.Container, command []string) crifake.ExecResult {
		if command[0] == "live" && broken.Load() || command[0] == "ready" && unready.Load() {
			return crifake.ExecResult{ExitCode: 1}
		}
		return crifake.ExecResult{}
	}}
	bubble(t, cfg, func(r *rig) {
		r.api.create(newPod("a", withSidecars("s1"), func(p *corev1.Pod) {
			p.Spec.InitContainers[0].LivenessProbe, p.Spec.InitContainers[0].ReadinessProbe = execProbe("live"), execProbe("ready")
		}))
		r.pass(3 * time.Second)
		if !conditions.IsTrue(r.pod("a").Status.Conditions, corev1.PodReady) {
			t.Error("not ready")
		}
		unready.Store(true)
		r.pass(5 * time.Second)
		if c := conditions.Find(r.pod("a").Status.Conditions, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Message != "containers with unready status: [s1]" {
			t.Errorf("condition is %+v", c)
		}
		unready.Store(false)
		broken.Store(true)
		r.pass(4 * time.Second)
		broken.Store(false)
		r.pass(5 * time.Second)
		if c := r.pod("a").Status.InitContainerStatuses[0]; c.RestartCount != 1 || !c.Ready {
			t.Errorf("sidecar is %+v", c)
		}
		if got := r.calls("StartContainer a/app"); len(got) != 1 {
			t.Errorf("the app was disturbed: %v", got)
		}
	})
}

// A kubelet that is restarted at any moment of a start with sidecars starts no container
// twice, and continues in order.
func TestKubeletRestartsWhileSidecarsStart(t *testing.T) {
	cfg := crifake.Config{
		Behave: func(s crifake.Start) crifake.Behaviour {
			if s.Container == "one" {
				return crifake.Behaviour{ExitAfter: time.Second}
			}
			return crifake.Behaviour{}
		},
		Latency: func(op string) time.Duration {
			if op == "CreateContainer" || op == "StartContainer" {
				return 300 * time.Millisecond
			}
			return 0
		},
	}
	for at := 100 * time.Millisecond; at < 4*time.Second; at += 300 * time.Millisecond {
		bubble(t, cfg, func(r *rig) {
			r.api.create(newPod("a", withSidecars("s1", "one", "s2")))
			r.pass(at)
			r.restart()
			r.pass(10 * time.Second)
			if s := r.pod("a").Status; s.Phase != corev1.PodRunning {
				t.Errorf("restarted after %v: %s", at, s.Phase)
			}
			var names []string
			for _, c := range r.runtime.Containers() {
				if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
					names = append(names, c.Name)
				}
			}
			if !slices.Equal(names, []string{"s1", "s2", "app"}) {
				t.Errorf("restarted after %v: %v run, %v", at, names, r.calls("StartContainer"))
			}
		})
	}
}

// A kubelet that is restarted during the termination keeps the order, and does not start
// a sidecar that has stopped.
func TestKubeletRestartsWhileSidecarsStop(t *testing.T) {
	cfg := crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{TermDelay: 3 * time.Second} }}
	for at := time.Second; at < 9*time.Second; at += time.Second {
		bubble(t, cfg, func(r *rig) {
			r.api.create(newPod("a", withSidecars("s1", "s2")))
			r.pass(5 * time.Second)
			r.api.deleteGracefully("a", 60)
			r.pass(at)
			r.restart()
			r.pass(15 * time.Second)
			if !r.gone("a") {
				t.Errorf("restarted after %v: the pod is not gone", at)
			}
			if got := r.calls("StartContainer"); len(got) != 3 {
				t.Errorf("restarted after %v: %v", at, got)
			}
			var order []string
			for _, call := range r.calls("StopContainer") {
				if name := strings.TrimPrefix(call, "StopContainer a/"); len(order) == 0 || order[len(order)-1] != name {
					order = append(order, name)
				}
			}
			if !slices.Equal(order, []string{"app", "s2", "s1"}) {
				t.Errorf("restarted after %v: stopped %v", at, order)
			}
		})
	}
}

func TestContainersRestartByTheirOwnPolicies(t *testing.T) {
	exitCode := func(code int32) func(crifake.Start) crifake.Behaviour {
		return func(crifake.Start) crifake.Behaviour {
			return crifake.Behaviour{ExitAfter: time.Second, ExitCode: code}
		}
	}
	rule := corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}
	for _, tc := range []struct {
		name   string
		pod    corev1.RestartPolicy
		own    corev1.ContainerRestartPolicy
		rules  []corev1.ContainerRestartRule
		code   int32
		starts int // in 5 seconds
		phase  corev1.PodPhase
	}{
		{name: "Always in a pod of Never", pod: "Never", own: "Always", starts: 2, phase: corev1.PodRunning},
		{name: "Never in a pod of Always", pod: "Always", own: "Never", code: 1, starts: 1, phase: corev1.PodFailed},
		{name: "OnFailure in a pod of Always", pod: "Always", own: "OnFailure", starts: 1, phase: corev1.PodSucceeded},
		{name: "the rule matches", pod: "Never", own: "Never", rules: []corev1.ContainerRestartRule{rule}, code: 42, starts: 2, phase: corev1.PodRunning},
		{name: "the rule does not match", pod: "Never", own: "Never", rules: []corev1.ContainerRestartRule{rule}, code: 1, starts: 1, phase: corev1.PodFailed},
	} {
		bubble(t, crifake.Config{Behave: exitCode(tc.code)}, func(r *rig) {
			r.api.create(newPod("a", func(p *corev1.Pod) {
				p.Spec.RestartPolicy = tc.pod
				p.Spec.Containers[0].RestartPolicy, p.Spec.Containers[0].RestartPolicyRules = &tc.own, tc.rules
			}))
			r.pass(5 * time.Second)
			if got := r.calls("StartContainer"); len(got) != tc.starts || r.pod("a").Status.Phase != tc.phase {
				t.Errorf("%s: %s after %v", tc.name, r.pod("a").Status.Phase, got)
			}
		})
	}
}
