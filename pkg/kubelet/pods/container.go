package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/podspec"
)

// The waiting reasons of containers that could not be started; clients match them.
const (
	reasonConfigError = "CreateContainerConfigError"
	reasonCreateError = "CreateContainerError"
	reasonRunError    = "RunContainerError"
)

// containers starts, restarts and stops the containers of a pod, and its sandbox.
type containers struct {
	*base
	mounts          *mounts
	plan            plan
	waiting         map[string]corev1.ContainerStateWaiting // why a container does not run, by name
	stops           map[string]stop                         // by container id
	turns           map[string]chan struct{}                // of sidecars, by container id: closed when they may stop
	parent          string                                  // the pod's cgroup in the form for the runtime; "": not created yet
	reportedSandbox string                                  // the sandbox whose end has been reported in an event
}

// startContainer creates and starts one container. It returns false while the
// image is being pulled; then the containers after it wait. If the container
// cannot be started, startContainer records the waiting reason and retries later.
func (cs *containers) startContainer(ctx context.Context, s start) (goOn bool) {
	name := s.spec.Name
	key := startKey(name, s.attempt)
	now := time.Now()
	if !cs.retries.due("start "+name, now) {
		return true
	}
	if s.adopt != nil {
		return cs.runContainer(ctx, s, s.adopt.id)
	}
	got, err := cs.ensureImages(ctx, s.spec, key)
	var wait *images.Waiting
	switch {
	case errors.As(err, &wait) && wait.Reason == "":
		if cs.waiting[name].Reason != images.ReasonImagePullBackOff {
			delete(cs.waiting, name)
		}
		return false
	case errors.As(err, &wait):
		cs.waiting[name] = corev1.ContainerStateWaiting{Reason: wait.Reason, Message: wait.Message}
		cs.again(wait.Until)
		return true
	case err != nil:
		return true // the pod is being terminated
	}
	config, err := cs.containerConfig(ctx, s, got)
	if err != nil {
		return cs.startFailed(s, reasonConfigError, err)
	}
	box := cs.observed.current()
	res, err := cs.m.cfg.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: box.id, Config: config.container, SandboxConfig: config.sandbox,
	})
	cs.usedImages(s.spec, key, err)
	if err != nil {
		cs.changed()
		return cs.startFailed(s, reasonCreateError, err)
	}
	cs.containerEvent(s.spec, corev1.EventTypeNormal, "Created", "Container created")
	return cs.runContainer(ctx, s, res.ContainerId)
}

// runContainer starts a created container, unless the pod is being terminated. It
// waits for the start even if the pod is terminated meanwhile: the runtime cannot
// remove a container that is starting.
func (cs *containers) runContainer(ctx context.Context, s start, id string) bool {
	if ctx.Err() != nil {
		return true
	}
	if err := cs.m.checkStopSignal(ctx, s.spec, id); err != nil {
		cs.changed()
		return cs.startFailed(s, reasonCreateError, err)
	}
	_, err := cs.m.cfg.Runtime.StartContainer(cs.upstream, &runtimeapi.StartContainerRequest{ContainerId: id})
	if err == nil {
		cs.containerEvent(s.spec, corev1.EventTypeNormal, "Started", "Container started")
	}
	c, readErr := reader{cs.m.cfg.Runtime}.status(ctx, id)
	if readErr != nil {
		cs.changed()
	} else {
		c.sandboxID = cs.observed.current().id
		cs.observed.put(c)
	}
	if err != nil {
		cs.changed()
		return cs.startFailed(s, reasonRunError, err)
	}
	delete(cs.waiting, s.spec.Name)
	cs.retries.ok("start " + s.spec.Name)
	cs.m.cfg.Metrics.containerStarted(s.init)
	if readErr == nil {
		cs.linkLog(c)
	}
	if h := s.spec.Lifecycle; h != nil && h.PostStart != nil {
		cs.postStart(s.spec, id)
	}
	return true
}

func (cs *containers) startFailed(s start, reason string, err error) bool {
	if cs.startCtx.Err() != nil {
		return true
	}
	message := cri.Message(err)
	cs.waiting[s.spec.Name] = corev1.ContainerStateWaiting{Reason: reason, Message: message}
	cs.retries.fail("start "+s.spec.Name, time.Now(), 500*time.Millisecond, 10*time.Second)
	cs.containerEvent(s.spec, corev1.EventTypeWarning, "Failed", "Error: "+message)
	cs.log.Warn("start container failed", "container", s.spec.Name, "reason", reason, "error", err)
	return true
}

// postStart runs the hook as a job; the containers that follow wait for it. If the
// hook fails, the container is killed.
func (cs *containers) postStart(spec *corev1.Container, id string) {
	pod := cs.withAddresses()
	cs.job(cs.startCtx, "postStart", func(ctx context.Context) func() {
		err := cs.m.hook(ctx, pod, spec, id, spec.Lifecycle.PostStart)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		return func() {
			cs.log.Warn("postStart hook failed", "container", spec.Name, "error", err)
			// As upstream, the event does not say why: the hook's output may be secret.
			cs.containerEvent(spec, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			if c := cs.observed.byID(id); c != nil && c.running() {
				cs.kill(kill{container: c, reason: killPostStart, message: "FailedPostStartHook"})
			}
		}
	})
}

// put replaces the container with the same id, or adds c as the newest.
func (o *observed) put(c *container) {
	for i, known := range o.containers {
		if known.id == c.id {
			o.containers[i] = c
			return
		}
	}
	o.containers = append([]*container{c}, o.containers...)
}

// removeOld removes containers that no status refers to. For each name it keeps
// the newest two, or only the newest of a finished init container. It also removes
// old sandboxes without containers.
func (cs *containers) removeOld() {
	kept := map[string]int{}
	for _, c := range cs.observed.containers {
		most := 2
		if latest := cs.observed.latest(c.name); cs.plan.initialized && isInit(cs.pod, c.name) && !isSidecar(cs.pod, c.name) && latest.exited() {
			most = 1
		}
		if kept[c.name]++; kept[c.name] <= most || !c.exited() {
			continue
		}
		cs.remove(c)
	}
	current := cs.observed.current()
	for _, box := range cs.observed.sandboxes {
		if current == nil || box.id == current.id || box.ready || cs.holdsContainers(box.id) {
			continue
		}
		id := box.id
		cs.job(cs.upstream, "remove "+id, func(ctx context.Context) func() {
			if _, err := cs.m.cfg.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
				return nil
			}
			return cs.changed
		})
	}
}

// remove starts a job that removes an exited container. It does nothing while an earlier one
// runs, or backs off after a failure.
func (cs *containers) remove(c *container) {
	key, old := "remove "+c.id, cs.logged(c)
	if !cs.retries.due(key, time.Now()) {
		return
	}
	cs.job(cs.upstream, key, func(ctx context.Context) func() {
		err := cs.m.removeContainer(ctx, old)
		if ctx.Err() != nil {
			return nil
		}
		return func() {
			if err != nil {
				cs.log.Warn("remove container failed", "container", old.container, "error", err)
				cs.retries.fail(key, time.Now(), time.Second, 30*time.Second)
				return
			}
			cs.retries.ok(key)
			cs.changed()
		}
	})
}

// removeContainer removes an exited container and its logs.
func (m *Manager) removeContainer(ctx context.Context, c logged) error {
	if err := m.removeLogs(c); err != nil {
		return fmt.Errorf("remove its logs: %w", err) // first: without the container, nothing names them
	}
	if err := m.unlinkLog(c); err != nil {
		return err
	}
	_, err := m.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.id})
	if cri.NotFound(err) {
		return nil
	}
	return err
}

func isInit(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

func isSidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name && podspec.Sidecar(&c) })
}

func (cs *containers) holdsContainers(sandboxID string) bool {
	for _, c := range cs.observed.containers {
		if c.sandboxID == sandboxID {
			return true
		}
	}
	return false
}

// expectChange makes the observer poll more often while a change is expected.
func (w *worker) expectChange() {
	if w.state == starting || len(w.running) > 0 || w.pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && w.state == running {
		w.m.observer.expect(5 * time.Second)
	}
}

// describeKill returns the message of the Killing event.
func describeKill(name string) string { return fmt.Sprintf("Stopping container %s", name) }
