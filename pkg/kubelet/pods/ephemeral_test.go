package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
)

func debugger(name string, change ...func(*corev1.EphemeralContainer)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(newContainer(name))}
		for _, f := range change {
			f(&c)
		}
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
		p.Generation++
	}
}

func TestEphemeralContainerStartsOnce(t *testing.T) {
	bubble(t, crifake.Config{Behave: exits(map[string]int32{"debug": 3})}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		r.api.change("a", debugger("debug"))
		r.pass(500 * time.Millisecond)
		s := r.pod("a").Status
		if len(s.EphemeralContainerStatuses) != 1 || s.EphemeralContainerStatuses[0].State.Running == nil || s.ObservedGeneration != 2 {
			t.Fatalf("statuses are %+v", s.EphemeralContainerStatuses)
		}
		r.api.change("a", debugger("second"))
		r.pass(5 * time.Minute)
		s = r.pod("a").Status
		first, second := s.EphemeralContainerStatuses[0], s.EphemeralContainerStatuses[1]
		if first.State.Terminated == nil || first.State.Terminated.ExitCode != 3 || second.State.Running == nil || s.Phase != corev1.PodRunning {
			t.Errorf("statuses are %+v", s.EphemeralContainerStatuses)
		}
		r.restart()
		r.runtime.KillSandbox("uid-a") // app containers start again in a new sandbox, ephemeral ones do not
		r.pass(time.Minute)
		if got := r.calls("StartContainer a/debug", "StartContainer a/second"); len(got) != 2 {
			t.Errorf("starts: %v", got)
		}
		if s := r.pod("a").Status; s.EphemeralContainerStatuses[1].State.Terminated == nil || s.ContainerStatuses[0].State.Running == nil {
			t.Errorf("status is %+v", s)
		}
	})
}

func TestEphemeralContainerJoinsTheProcessesOfItsTarget(t *testing.T) {
	target := func(c *corev1.EphemeralContainer) { c.TargetContainerName = "app" }
	bubble(t, crifake.Config{Behave: exits(map[string]int32{"init": 0})}, func(r *rig) {
		r.api.create(newPod("a", withInit("init"), debugger("debug", target)))
		r.pass(500 * time.Millisecond) // the init container still runs
		w := r.pod("a").Status.EphemeralContainerStatuses[0].State.Waiting
		if w == nil || w.Reason != "CreateContainerConfigError" || w.Message != `unable to find target container "app"` {
			t.Errorf("waits: %+v", w)
		}
		r.pass(10 * time.Second)
		n := r.container("a", "debug").Config.Linux.SecurityContext.NamespaceOptions
		if n.Pid != runtimeapi.NamespaceMode_TARGET || n.TargetId != r.container("a", "app").ID {
			t.Errorf("namespaces: %+v", n)
		}
	})
}

// The statuses of a pod survive the loss of its ephemeral containers in the runtime.
func TestEphemeralContainerThatIsLostIsNotStartedAgain(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", debugger("debug")))
		r.pass(time.Second)
		if _, err := r.runtime.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: r.container("a", "debug").ID}); err != nil {
			t.Fatal(err)
		}
		r.restart()
		r.pass(10 * time.Second)
		s := r.pod("a").Status.EphemeralContainerStatuses[0]
		if s.State.Terminated == nil || s.State.Terminated.Reason != "ContainerStatusUnknown" || len(r.calls("StartContainer a/debug")) != 1 {
			t.Errorf("status is %+v, %v", s, r.calls("StartContainer"))
		}
	})
}

// An image that cannot be pulled must not delay the app containers.
func TestEphemeralContainerDelaysNoOther(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", debugger("debug", func(c *corev1.EphemeralContainer) { c.Image, c.ImagePullPolicy = "none:1", corev1.PullNever })))
		r.pass(time.Second)
		s := r.pod("a").Status
		if s.Phase != corev1.PodRunning || s.EphemeralContainerStatuses[0].State.Waiting.Reason != "ErrImageNeverPull" {
			t.Errorf("%s, %+v", s.Phase, s.EphemeralContainerStatuses)
		}
		r.api.deleteGracefully("a", 1)
		r.pass(3 * time.Second)
		if !r.gone("a") {
			t.Error("the pod is not gone")
		}
	})
}
