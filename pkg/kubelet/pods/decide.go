package pods

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/cri"
)

// The crash-loop back-off: the first restart is immediate, then 10 s, 20 s, 40 s, …
const (
	firstRestartDelay = 10 * time.Second
	maxRestartDelay   = 5 * time.Minute  // unless Options.MaxRestartDelay is less
	restartDelayReset = 10 * time.Minute // the back-off of a container that ran longer is reset
)

// probeVerdict is the result of the probes of a running container.
type probeVerdict int

const (
	probeFine probeVerdict = iota
	probeLivenessFailed
	probeStartupFailed
	probeStarting // its startup probe has not succeeded yet
)

// start is a container to create and start, or one that was created but not started.
type start struct {
	spec    *corev1.Container
	init    bool
	attempt int32
	delay   time.Duration // the back-off after this attempt
	adopt   *container    // a container that an earlier kubelet created but did not start
}

// kill is a container to stop although the pod is to run.
type kill struct {
	container *container
	message   string // the event's
	reason    killReason
}

type killReason string

const (
	killSandboxGone  killReason = "sandbox"
	killChanged      killReason = "changed"
	killLiveness     killReason = "liveness"
	killStartup      killReason = "startup"
	killUnknownState killReason = "unknown"
	killPostStart    killReason = "postStart"
	killResize       killReason = "resize"
)

// plan is what to do for a pod that is to run.
type plan struct {
	newSandbox     bool
	sandboxAttempt uint32
	kill           []kill
	start          []start              // in order: each waits for the one before
	ephemeral      []start              // ephemeral containers: they wait for no other
	waiting        map[string]crashWait // containers in back-off
	initialized    bool                 // all init containers are done
	finished       bool                 // no container will run again

	// The input.
	maxDelay time.Duration
	pod      *corev1.Pod
	observed observed
	judge    func(containerID string) probeVerdict
	now      time.Time
}

// crashWait is the back-off of a container.
type crashWait struct {
	delay time.Duration
	until time.Time
}

// wake returns when the plan next changes without any event; zero: never.
func (p *plan) wake() time.Time {
	var first time.Time
	for _, w := range p.waiting {
		if first.IsZero() || w.until.Before(first) {
			first = w.until
		}
	}
	return first
}

// decide returns what to do for a pod that is to run, given its state in the
// runtime, the results of its probes, and the time. maxDelay limits the crash-loop
// back-off. It does no I/O.
func decide(pod *corev1.Pod, o observed, verdict func(containerID string) probeVerdict, now time.Time, maxDelay time.Duration) plan {
	p := plan{waiting: map[string]crashWait{}, pod: pod, observed: o, judge: verdict, now: now, maxDelay: maxDelay}
	box := o.current()
	whole := box != nil && box.ready && (pod.Spec.HostNetwork || len(box.ips) > 0)
	if !whole {
		p.decideSandbox()
		if p.finished {
			return p
		}
		if box != nil {
			for _, c := range o.active() {
				p.kill = append(p.kill, kill{container: c, reason: killSandboxGone, message: "Pod sandbox changed, it will be killed and re-created."})
			}
		}
		// Containers are started when the sandbox exists.
		return p
	}
	for _, c := range o.active() {
		if c.sandboxID != box.id {
			p.kill = append(p.kill, kill{container: c, reason: killSandboxGone, message: "Pod sandbox changed, it will be killed and re-created."})
		}
	}
	p.decideEphemeral()
	if p.decideInit(box); p.initialized {
		p.decideApps()
	}
	return p
}

// decideSandbox plans a new sandbox unless no container is to run any more.
func (p *plan) decideSandbox() {
	if box := p.observed.current(); box != nil {
		p.sandboxAttempt = box.attempt + 1
	}
	p.finished = len(p.pod.Spec.Containers) > 0 && p.appsFinished() || p.failedInit()
	p.newSandbox = !p.finished
}

// appsFinished reports whether no app container runs or will run again.
func (p *plan) appsFinished() bool {
	for i := range p.pod.Spec.Containers {
		spec := &p.pod.Spec.Containers[i]
		if c := p.observed.latest(spec.Name); c == nil || !c.exited() || shouldRestart(p.pod, spec, c) {
			return false
		}
	}
	return true
}

// decideApps plans the app containers.
func (p *plan) decideApps() {
	for i := range p.pod.Spec.Containers {
		spec := &p.pod.Spec.Containers[i]
		p.keep(spec, false, p.observed.latest(spec.Name))
	}
	p.finished = p.appsFinished()
}

// keep plans what an app container or a sidecar needs in order to run. c is its newest
// container; nil if there is none.
func (p *plan) keep(spec *corev1.Container, init bool, c *container) {
	switch {
	case c == nil:
		p.start = append(p.start, start{spec: spec, init: init, attempt: nextAttempt(p.pod, p.observed, spec.Name)})
	case c.exited():
		if shouldRestart(p.pod, spec, c) {
			p.restart(spec, init, c)
		}
	case c.state == runtimeapi.ContainerState_CONTAINER_CREATED:
		p.start = append(p.start, start{spec: spec, init: init, attempt: c.attempt, delay: c.restartDelay(), adopt: c})
	case c.state == runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		p.kill = append(p.kill, unknownState(c))
	case changed(spec, c):
		p.kill = append(p.kill, kill{c, fmt.Sprintf("Container %s definition changed, will be restarted", spec.Name), killChanged})
	case p.judge(c.id) == probeLivenessFailed:
		p.kill = append(p.kill, kill{c, fmt.Sprintf("Container %s failed liveness probe, will be restarted", spec.Name), killLiveness})
	case p.judge(c.id) == probeStartupFailed:
		p.kill = append(p.kill, kill{c, fmt.Sprintf("Container %s failed startup probe, will be restarted", spec.Name), killStartup})
	}
}

func unknownState(c *container) kill {
	return kill{c, fmt.Sprintf("Container is in %q state, try killing it before restart", "unknown"), killUnknownState}
}

// restart plans the next attempt of a container, or its back-off.
func (p *plan) restart(spec *corev1.Container, init bool, last *container) {
	delay := last.restartDelay()
	if last.replaced || changed(spec, last) || last.finished.Sub(last.created) > restartDelayReset {
		delay = 0
	}
	delay = min(delay, p.maxDelay) // an earlier kubelet may have had a higher limit
	retry := backoff.Backoff{Initial: min(firstRestartDelay, p.maxDelay), Max: p.maxDelay}
	// If the end is in the future, the clock was set back: do not wait.
	if until := last.finished.Add(delay); p.now.Before(until) && !last.finished.After(p.now) {
		p.waiting[spec.Name] = crashWait{delay: delay, until: until}
		return
	}
	p.start = append(p.start, start{spec: spec, init: init, attempt: last.attempt + 1, delay: retry.After(delay)})
}

// nextAttempt returns the number of the next attempt: one more than the newest
// container in the runtime, or, without one, than in the pod's status.
func nextAttempt(pod *corev1.Pod, o observed, name string) int32 {
	if c := o.latest(name); c != nil {
		return c.attempt + 1
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name && list[i].ContainerID != "" {
				return list[i].RestartCount + 1
			}
		}
	}
	return 0
}

// changed reports whether the spec requires a new container in place of c.
func changed(spec *corev1.Container, c *container) bool {
	hash := c.annotations[cri.AnnotationHash]
	return hash != "" && hash != containerHash(spec)
}

// containerHash returns a hash of the fields whose change requires a new
// container. Of the fields that can change, only the image does.
func containerHash(c *corev1.Container) string {
	data, err := json.Marshal(struct{ Name, Image string }{c.Name, c.Image})
	if err != nil {
		return ""
	}
	h := fnv.New32a()
	h.Write(data)
	return fmt.Sprintf("%x", h.Sum32())
}
