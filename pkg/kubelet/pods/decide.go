package pods

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// The crash loop's back-off: the first restart is at once, then 10 s, 20 s, 40 s, …
const (
	firstRestartDelay = 10 * time.Second
	maxRestartDelay   = 5 * time.Minute
	restartDelayReset = 2 * maxRestartDelay // a container that ran longer starts afresh
)

// probeVerdict is what probes say of a running container.
type probeVerdict int

const (
	probeFine probeVerdict = iota
	probeLivenessFailed
	probeStartupFailed
)

// start is a container to start, or an existing one that was created and never started.
type start struct {
	spec    *corev1.Container
	init    bool
	attempt int32
	delay   time.Duration // the back-off after this attempt's end
	adopt   *container    // created by a kubelet that did not live to start it
}

// kill is a container to stop because it must not go on as it is.
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
)

// plan is what is to be done for a pod that is to run.
type plan struct {
	newSandbox     bool
	sandboxAttempt uint32
	kill           []kill
	start          []start              // in order: the next one waits for the one before
	waiting        map[string]crashWait // containers in back-off
	initialized    bool                 // no init container has anything left to do
	finished       bool                 // nothing will run again
}

// crashWait says until when a container waits.
type crashWait struct {
	delay time.Duration
	until time.Time
}

// wake is when the plan changes by time alone; zero: never.
func (p *plan) wake() time.Time {
	var first time.Time
	for _, w := range p.waiting {
		if first.IsZero() || w.until.Before(first) {
			first = w.until
		}
	}
	return first
}

// decide says what to do for a pod that should run, from what the runtime has
// of it, what probes say, and the time.
func decide(pod *corev1.Pod, o observed, verdict func(containerID string) probeVerdict, now time.Time) plan {
	p := plan{waiting: map[string]crashWait{}}
	box := o.current()
	whole := box != nil && box.ready && (pod.Spec.HostNetwork || len(box.ips) > 0)
	if !whole {
		decideSandbox(&p, pod, o)
		if p.finished {
			return p
		}
		if box != nil {
			for _, c := range o.active() {
				p.kill = append(p.kill, kill{container: c, reason: killSandboxGone, message: "Pod sandbox changed, it will be killed and re-created."})
			}
		}
		// The containers to start follow once the sandbox is there.
		return p
	}
	for _, c := range o.active() {
		if c.sandboxID != box.id {
			p.kill = append(p.kill, kill{container: c, reason: killSandboxGone, message: "Pod sandbox changed, it will be killed and re-created."})
		}
	}
	if decideInit(&p, pod, o, box, now); p.initialized {
		decideApps(&p, pod, o, verdict, now)
	}
	return p
}

// decideSandbox asks for a new sandbox if anything is left to run in it.
func decideSandbox(p *plan, pod *corev1.Pod, o observed) {
	if box := o.current(); box != nil {
		p.sandboxAttempt = box.attempt + 1
	}
	p.finished = len(pod.Spec.Containers) > 0
	for i := range pod.Spec.Containers {
		c := o.latest(pod.Spec.Containers[i].Name)
		if c == nil || !c.exited() || shouldRestart(pod, c) {
			p.finished = false
		}
	}
	if failed := failedInit(pod, o); failed {
		p.finished = true
	}
	p.newSandbox = !p.finished
}

// failedInit says that an init container of a pod that never restarts has failed.
func failedInit(pod *corev1.Pod, o observed) bool {
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return false
	}
	for i := range pod.Spec.InitContainers {
		if c := o.latest(pod.Spec.InitContainers[i].Name); c != nil && c.exited() && c.exitCode != 0 {
			return true
		}
	}
	return false
}

// decideInit finds the init container whose turn it is. They run one after
// another, once per sandbox; when an app container exists, they are done.
func decideInit(p *plan, pod *corev1.Pod, o observed, box *sandbox, now time.Time) {
	for i := range pod.Spec.Containers {
		if o.latestIn(box.id, pod.Spec.Containers[i].Name) != nil {
			p.initialized = true
			return
		}
	}
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		c := o.latestIn(box.id, spec.Name)
		switch {
		case c == nil:
			p.start = append(p.start, start{spec: spec, init: true, attempt: nextAttempt(pod, o, spec.Name)})
			return
		case c.exited() && c.exitCode == 0:
			continue
		case c.exited() && pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
			p.finished = true
			return
		case c.exited():
			p.restart(spec, true, c, now)
			return
		case c.state == runtimeapi.ContainerState_CONTAINER_CREATED:
			p.start = append(p.start, start{spec: spec, init: true, attempt: c.attempt, delay: c.restartDelay(), adopt: c})
			return
		case c.state == runtimeapi.ContainerState_CONTAINER_UNKNOWN:
			p.kill = append(p.kill, unknownState(c))
			return
		default:
			return // it is running
		}
	}
	p.initialized = true
}

// decideApps looks at each container of the spec.
func decideApps(p *plan, pod *corev1.Pod, o observed, verdict func(string) probeVerdict, now time.Time) {
	p.finished = true
	for i := range pod.Spec.Containers {
		spec := &pod.Spec.Containers[i]
		c := o.latest(spec.Name)
		if c == nil || !c.exited() || shouldRestart(pod, c) {
			p.finished = false
		}
		switch {
		case c == nil:
			p.start = append(p.start, start{spec: spec, attempt: nextAttempt(pod, o, spec.Name)})
		case c.exited():
			if shouldRestart(pod, c) {
				p.restart(spec, false, c, now)
			}
		case c.state == runtimeapi.ContainerState_CONTAINER_CREATED:
			p.start = append(p.start, start{spec: spec, attempt: c.attempt, delay: c.restartDelay(), adopt: c})
		case c.state == runtimeapi.ContainerState_CONTAINER_UNKNOWN:
			p.kill = append(p.kill, unknownState(c))
		case c.annotations[cri.AnnotationHash] != "" && c.annotations[cri.AnnotationHash] != containerHash(spec):
			p.kill = append(p.kill, kill{c, fmt.Sprintf("Container %s definition changed, will be restarted", spec.Name), killChanged})
		case verdict(c.id) == probeLivenessFailed:
			p.kill = append(p.kill, kill{c, fmt.Sprintf("Container %s failed liveness probe, will be restarted", spec.Name), killLiveness})
		case verdict(c.id) == probeStartupFailed:
			p.kill = append(p.kill, kill{c, fmt.Sprintf("Container %s failed startup probe, will be restarted", spec.Name), killStartup})
		}
	}
}

func unknownState(c *container) kill {
	return kill{c, fmt.Sprintf("Container is in %q state, try killing it before restart", "unknown"), killUnknownState}
}

// restart starts a container again, or lets it wait for its back-off.
func (p *plan) restart(spec *corev1.Container, init bool, last *container, now time.Time) {
	delay, next := last.restartDelay(), firstRestartDelay
	if last.finished.Sub(last.created) > restartDelayReset {
		delay = 0
	} else if delay > 0 {
		next = min(2*delay, maxRestartDelay)
	}
	// An end in the future is a clock that was set back: nothing to wait for.
	if until := last.finished.Add(delay); now.Before(until) && !last.finished.After(now) {
		p.waiting[spec.Name] = crashWait{delay: delay, until: until}
		return
	}
	p.start = append(p.start, start{spec: spec, init: init, attempt: last.attempt + 1, delay: next})
}

// shouldRestart is the restart policy's word on an exited container.
func shouldRestart(pod *corev1.Pod, c *container) bool {
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return c.exitCode != 0
	}
	return true
}

// nextAttempt counts on from what the runtime has of a container, or, if it
// has lost it, from what the API knows.
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

// containerHash tells whether a container must be made anew when the pod's
// spec changes: only its image may.
func containerHash(c *corev1.Container) string {
	data, err := json.Marshal(struct{ Name, Image string }{c.Name, c.Image})
	if err != nil {
		return ""
	}
	h := fnv.New32a()
	h.Write(data)
	return fmt.Sprintf("%x", h.Sum32())
}
