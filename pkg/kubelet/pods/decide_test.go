package pods

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// text formats a plan.
func (p *plan) text() string {
	var out []string
	if p.newSandbox {
		out = append(out, fmt.Sprintf("sandbox %d", p.sandboxAttempt))
	}
	for _, k := range p.kill {
		out = append(out, fmt.Sprintf("kill %s (%s)", k.container.name, k.reason))
	}
	for _, s := range p.start {
		verb := "start"
		if s.adopt != nil {
			verb = "adopt"
		}
		out = append(out, fmt.Sprintf("%s %s #%d then wait %v", verb, s.spec.Name, s.attempt, s.delay))
	}
	for name, w := range p.waiting {
		out = append(out, fmt.Sprintf("%s waits %v", name, w.delay))
	}
	if p.finished {
		out = append(out, "finished")
	}
	return strings.Join(out, "; ")
}

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	box := sandbox{id: "s", ready: true, ips: []string{"10.0.0.1"}, attempt: 3}
	app := newContainer("app")
	// one returns a container that ended or started some time ago.
	one := func(name string, state runtimeapi.ContainerState, change ...func(*container)) *container {
		c := &container{
			id: "id-" + name, sandboxID: "s", name: name, state: state, attempt: 1,
			created: now.Add(-time.Minute), started: now.Add(-time.Minute), finished: now.Add(-time.Second),
			annotations: map[string]string{cri.AnnotationHash: containerHash(&app), cri.AnnotationRestartDelay: "20s"},
		}
		if name != "app" {
			delete(c.annotations, cri.AnnotationHash)
		}
		for _, f := range change {
			f(c)
		}
		return c
	}
	const created, running, exited, unknown = runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_RUNNING,
		runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN
	code := func(n int32) func(*container) { return func(c *container) { c.exitCode = n } }
	policy := func(p corev1.RestartPolicy) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = p }
	}
	healthy := func(string) probeVerdict { return probeFine }
	for _, c := range []struct {
		name, reason string
		pod          []func(*corev1.Pod)
		boxes        []sandbox
		containers   []*container
		verdict      probeVerdict
		want         string
	}{
		{name: "New", reason: "nothing is there", want: "sandbox 0"},
		{name: "Sandboxed", reason: "the first container follows its sandbox", boxes: []sandbox{box}, want: "start app #0 then wait 0s"},
		{name: "NoAddress", reason: "a sandbox without address is none", boxes: []sandbox{{id: "s", ready: true}}, want: "sandbox 1"},
		{name: "HostNetwork", reason: "on the host's network it needs none", boxes: []sandbox{{id: "s", ready: true}},
			pod: []func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.HostNetwork = true }}, want: "start app #0 then wait 0s"},
		{name: "Runs", reason: "all is well", boxes: []sandbox{box}, containers: []*container{one("app", running)}, want: ""},
		{name: "Liveness", reason: "its liveness probe failed", boxes: []sandbox{box}, containers: []*container{one("app", running)}, verdict: probeLivenessFailed, want: "kill app (liveness)"},
		{name: "Startup", reason: "its startup probe failed", boxes: []sandbox{box}, containers: []*container{one("app", running)}, verdict: probeStartupFailed, want: "kill app (startup)"},
		{name: "Image", reason: "the spec has another image", boxes: []sandbox{box}, containers: []*container{one("app", running)},
			pod: []func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:9" }}, want: "kill app (changed)"},
		{name: "Unknown", reason: "the runtime lost it", boxes: []sandbox{box}, containers: []*container{one("app", unknown)}, want: "kill app (unknown)"},
		{name: "Created", reason: "a kubelet died between create and start", boxes: []sandbox{box}, containers: []*container{one("app", created)}, want: "adopt app #1 then wait 20s"},
		{name: "BackOff", reason: "it ended a second ago and must wait", boxes: []sandbox{box}, containers: []*container{one("app", exited)}, want: "app waits 20s"},
		{name: "BackOffImage", reason: "the spec has another image, for which there is no back-off", boxes: []sandbox{box}, containers: []*container{one("app", exited)},
			pod: []func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:9" }}, want: "start app #2 then wait 10s"},
		{name: "NeverImage", reason: "it has ended by itself, which no image changes", boxes: []sandbox{box}, containers: []*container{one("app", exited)},
			pod: []func(*corev1.Pod){policy(corev1.RestartPolicyNever), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:9" }}, want: "finished"},
		{name: "NeverReplaced", reason: "it was stopped for the sake of another image", boxes: []sandbox{box}, containers: []*container{one("app", exited, func(c *container) { c.replaced = true })},
			pod: []func(*corev1.Pod){policy(corev1.RestartPolicyNever)}, want: "start app #2 then wait 10s"},
		{name: "BackOffOver", reason: "it has waited", boxes: []sandbox{box},
			containers: []*container{one("app", exited, func(c *container) { c.finished = now.Add(-20 * time.Second) })}, want: "start app #2 then wait 40s"},
		{name: "BackOffMost", reason: "the back-off has an end", boxes: []sandbox{box},
			containers: []*container{one("app", exited, func(c *container) {
				c.finished, c.annotations[cri.AnnotationRestartDelay] = now.Add(-time.Hour), "5m0s"
				c.created = c.finished.Add(-time.Second)
			})}, want: "start app #2 then wait 5m0s"},
		{name: "BackOffReset", reason: "it ran long enough to be forgiven", boxes: []sandbox{box},
			containers: []*container{one("app", exited, func(c *container) { c.created = now.Add(-11 * time.Minute) })}, want: "start app #2 then wait 10s"},
		{name: "ClockSetBack", reason: "an end in the future is nothing to wait for", boxes: []sandbox{box},
			containers: []*container{one("app", exited, func(c *container) { c.finished = now.Add(time.Hour); c.created = c.finished })}, want: "start app #2 then wait 40s"},
		{name: "Never", reason: "it is not started again", pod: []func(*corev1.Pod){policy(corev1.RestartPolicyNever)}, boxes: []sandbox{box}, containers: []*container{one("app", exited, code(1))}, want: "finished"},
		{name: "OnFailureDone", reason: "it succeeded", pod: []func(*corev1.Pod){policy(corev1.RestartPolicyOnFailure)}, boxes: []sandbox{box}, containers: []*container{one("app", exited)}, want: "finished"},
		{name: "Init", reason: "init containers go first", pod: []func(*corev1.Pod){withInit("i", "j")}, boxes: []sandbox{box}, want: "start i #0 then wait 0s"},
		{name: "InitRuns", reason: "and one waits for the other", pod: []func(*corev1.Pod){withInit("i", "j")}, boxes: []sandbox{box}, containers: []*container{one("i", running)}, want: ""},
		{name: "InitNext", reason: "the first is done", pod: []func(*corev1.Pod){withInit("i", "j")}, boxes: []sandbox{box}, containers: []*container{one("i", exited)}, want: "start j #0 then wait 0s"},
		{name: "InitFailed", reason: "it is started again", pod: []func(*corev1.Pod){withInit("i")}, boxes: []sandbox{box}, containers: []*container{one("i", exited, code(1))}, want: "i waits 20s"},
		{name: "InitFailedNever", reason: "the pod has failed", pod: []func(*corev1.Pod){withInit("i"), policy(corev1.RestartPolicyNever)}, boxes: []sandbox{box}, containers: []*container{one("i", exited, code(1))}, want: "finished"},
		{name: "InitForgotten", reason: "an app container is proof enough", pod: []func(*corev1.Pod){withInit("i")}, boxes: []sandbox{box}, containers: []*container{one("app", running)}, want: ""},
		{name: "SandboxDied", reason: "what is in it goes, then a new one comes", boxes: []sandbox{{id: "s", attempt: 3}}, containers: []*container{one("app", running)}, want: "sandbox 4; kill app (sandbox)"},
		{name: "SandboxDiedNever", reason: "nothing is left to run in a new one", pod: []func(*corev1.Pod){policy(corev1.RestartPolicyNever)},
			boxes: []sandbox{{id: "s"}}, containers: []*container{one("app", exited, code(137))}, want: "finished"},
		{name: "NewSandboxInits", reason: "in a new sandbox they run again", pod: []func(*corev1.Pod){withInit("i")}, boxes: []sandbox{{id: "t", ready: true, ips: box.ips}, box},
			containers: []*container{one("app", exited), one("i", exited)}, want: "start i #2 then wait 0s"},
		{name: "Lost", reason: "the API remembers how often it was started", boxes: []sandbox{box},
			pod: []func(*corev1.Pod){func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "containerd://x", RestartCount: 6}}
			}}, want: "start app #7 then wait 0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			judge := healthy
			if c.verdict != probeFine {
				judge = func(string) probeVerdict { return c.verdict }
			}
			p := decide(newPod("a", c.pod...), observed{sandboxes: c.boxes, containers: c.containers}, judge, now, maxRestartDelay)
			if got := p.text(); got != c.want {
				t.Errorf("%q, want %q: %s", got, c.want, c.reason)
			}
		})
	}
}

func TestPhase(t *testing.T) {
	state := func(text string) corev1.ContainerStatus {
		done := func(code int32) *corev1.ContainerStateTerminated {
			return &corev1.ContainerStateTerminated{ExitCode: code}
		}
		switch text {
		case "run":
			return corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
		case "ok":
			return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: done(0)}}
		case "bad":
			return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: done(1)}}
		case "loop":
			return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}, LastTerminationState: corev1.ContainerState{Terminated: done(1)}}
		}
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	}
	states := func(text string) (out []corev1.ContainerStatus) {
		for _, s := range strings.Fields(text) {
			out = append(out, state(s))
		}
		return out
	}
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	for _, c := range []struct {
		policy      corev1.RestartPolicy
		inits, apps string
		ended       bool
		want        corev1.PodPhase
	}{
		{always, "", "wait", false, corev1.PodPending},
		{always, "", "run run", false, corev1.PodRunning},
		{always, "", "run wait", false, corev1.PodPending},
		{always, "", "run loop", false, corev1.PodRunning},
		{always, "", "loop", false, corev1.PodRunning},
		{always, "", "ok ok", false, corev1.PodRunning},
		{always, "", "ok ok", true, corev1.PodSucceeded},
		{always, "", "ok bad", true, corev1.PodFailed},
		{always, "", "wait", true, corev1.PodFailed},
		{onFailure, "", "ok ok", false, corev1.PodSucceeded},
		{onFailure, "", "ok bad", false, corev1.PodRunning},
		{never, "", "ok ok", false, corev1.PodSucceeded},
		{never, "", "ok bad", false, corev1.PodFailed},
		{never, "", "ok run", false, corev1.PodRunning},
		{always, "run", "wait", false, corev1.PodPending},
		{always, "loop", "wait", false, corev1.PodPending},
		{never, "bad", "wait", false, corev1.PodFailed},
		{always, "ok", "run", false, corev1.PodRunning},
	} {
		pod := newPod("a", func(p *corev1.Pod) { p.Spec.RestartPolicy = c.policy })
		if got := phase(pod, states(c.inits), states(c.apps), c.ended); got != c.want {
			t.Errorf("%s init [%s] app [%s] ended %v: %s, want %s", c.policy, c.inits, c.apps, c.ended, got, c.want)
		}
	}
}

func TestCrashLoopBackOffHasTheConfiguredLimit(t *testing.T) {
	for name, row := range map[string]struct {
		reason    string
		most      time.Duration
		last      time.Duration // the back-off after the container that exited
		waits     time.Duration // from its exit; 0: it starts
		following time.Duration // the back-off after the next one
	}{
		"Default":    {reason: "10 s after the first restart", most: maxRestartDelay, following: 10 * time.Second},
		"BelowFirst": {reason: "a limit below 10 s is the first back-off, too", most: 2 * time.Second, following: 2 * time.Second},
		"Lowered":    {reason: "an earlier kubelet recorded a longer back-off", most: 2 * time.Second, last: time.Minute, waits: 2 * time.Second},
	} {
		now := time.Now()
		c := &container{
			id: "c", sandboxID: "s", name: "app", state: runtimeapi.ContainerState_CONTAINER_EXITED, created: now.Add(-time.Minute), finished: now,
			annotations: map[string]string{cri.AnnotationRestartDelay: row.last.String()},
		}
		o := observed{sandboxes: []sandbox{{id: "s", ready: true, ips: []string{"10.0.0.1"}}}, containers: []*container{c}}
		p := decide(newPod("a"), o, func(string) probeVerdict { return probeFine }, now, row.most)
		if w, waits := p.waiting["app"]; waits && w.until.Sub(now) != row.waits || !waits && (row.waits != 0 || p.start[0].delay != row.following) {
			t.Errorf("%s: %+v, %+v: %s", name, p.waiting, p.start, row.reason)
		}
	}
}
