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
)

// The waiting reasons of containers that could not be started; clients match them.
const (
	reasonConfigError = "CreateContainerConfigError"
	reasonCreateError = "CreateContainerError"
	reasonRunError    = "RunContainerError"
)

// startContainer makes and starts one container. It is false while the image is
// on its way: then the containers after it wait. A container that cannot be
// started says why and is tried again later.
func (w *worker) startContainer(ctx context.Context, s start) (goOn bool) {
	name := s.spec.Name
	key := startKey(name, s.attempt)
	now := time.Now()
	if !w.retries.due("start "+name, now) {
		return true
	}
	if s.adopt != nil {
		return w.runContainer(ctx, s, s.adopt.id)
	}
	image, err := w.m.puller.Ensure(ctx, w.pod, s.spec, key)
	var wait *images.Waiting
	switch {
	case errors.As(err, &wait) && wait.Reason == "":
		if w.waiting[name].Reason != images.ReasonImagePullBackOff {
			delete(w.waiting, name)
		}
		return false
	case errors.As(err, &wait):
		w.waiting[name] = corev1.ContainerStateWaiting{Reason: wait.Reason, Message: wait.Message}
		w.again(wait.Until)
		return true
	case err != nil:
		return true // the pod is to end
	}
	config, err := w.containerConfig(ctx, s, image)
	if err != nil {
		return w.startFailed(s, reasonConfigError, err)
	}
	box := w.observed.current()
	res, err := w.m.cfg.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: box.id, Config: config.container, SandboxConfig: config.sandbox,
	})
	w.m.puller.Used(w.uid, s.spec, key)
	if err != nil {
		w.changed()
		return w.startFailed(s, reasonCreateError, err)
	}
	w.containerEvent(s.spec, corev1.EventTypeNormal, "Created", "Container created")
	return w.runContainer(ctx, s, res.ContainerId)
}

// runContainer starts a container that has been made, unless the pod is to end.
// A start under way is waited for even then: the runtime does not remove a
// container in that state.
func (w *worker) runContainer(ctx context.Context, s start, id string) bool {
	if ctx.Err() != nil {
		return true
	}
	_, err := w.m.cfg.Runtime.StartContainer(w.upstream, &runtimeapi.StartContainerRequest{ContainerId: id})
	if err == nil {
		w.containerEvent(s.spec, corev1.EventTypeNormal, "Started", "Container started")
	}
	c, readErr := reader{w.m.cfg.Runtime}.status(ctx, id)
	if readErr != nil {
		w.changed()
	} else {
		c.sandboxID = w.observed.current().id
		w.observed.put(c)
	}
	if err != nil {
		w.changed()
		return w.startFailed(s, reasonRunError, err)
	}
	delete(w.waiting, s.spec.Name)
	w.retries.ok("start " + s.spec.Name)
	w.m.cfg.Metrics.containerStarted(s.init)
	if h := s.spec.Lifecycle; h != nil && h.PostStart != nil && !s.init {
		w.postStart(s.spec, id)
	}
	return true
}

func (w *worker) startFailed(s start, reason string, err error) bool {
	if w.startCtx.Err() != nil {
		return true
	}
	message := cri.Message(err)
	w.waiting[s.spec.Name] = corev1.ContainerStateWaiting{Reason: reason, Message: message}
	w.retries.fail("start "+s.spec.Name, time.Now(), 500*time.Millisecond, 10*time.Second)
	w.containerEvent(s.spec, corev1.EventTypeWarning, "Failed", "Error: "+message)
	w.log.Warn("container not started", "container", s.spec.Name, "reason", reason, "error", err)
	return true
}

func (w *worker) containerEvent(spec *corev1.Container, eventType, reason, message string) {
	w.m.cfg.Events.EventOn(w.pod, images.FieldPath(w.pod, spec.Name), eventType, reason, message)
}

// postStart runs the hook beside the worker; the containers that follow wait
// for it. A container whose hook fails is killed.
func (w *worker) postStart(spec *corev1.Container, id string) {
	pod := w.withAddresses()
	w.job(w.startCtx, "postStart", func(ctx context.Context) func() {
		err := w.m.hook(ctx, pod, spec, id, spec.Lifecycle.PostStart)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		return func() {
			w.log.Warn("postStart hook failed", "container", spec.Name, "error", err)
			w.containerEvent(spec, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			if c := w.observed.byID(id); c != nil && c.running() {
				w.kill(kill{container: c, reason: killPostStart, message: "FailedPostStartHook"})
			}
		}
	})
}

// put adds a container that is newer than all others, or replaces what was
// known of it.
func (o *observed) put(c *container) {
	for i, known := range o.containers {
		if known.id == c.id {
			o.containers[i] = c
			return
		}
	}
	o.containers = append([]*container{c}, o.containers...)
}

// removeOld removes containers that no status shows any more: of each name the
// newest and the one before it stay, of an init container that is done the newest.
func (w *worker) removeOld() {
	kept := map[string]int{}
	for _, c := range w.observed.containers {
		most := 2
		if latest := w.observed.latest(c.name); w.plan.initialized && isInit(w.pod, c.name) && latest.exited() {
			most = 1
		}
		if kept[c.name]++; kept[c.name] <= most || !c.exited() {
			continue
		}
		id := c.id
		w.job(w.upstream, "remove "+id, func(ctx context.Context) func() {
			if _, err := w.m.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
				return nil
			}
			return w.changed
		})
	}
	current := w.observed.current()
	for _, box := range w.observed.sandboxes {
		if current == nil || box.id == current.id || box.ready || w.holdsContainers(box.id) {
			continue
		}
		id := box.id
		w.job(w.upstream, "remove "+id, func(ctx context.Context) func() {
			if _, err := w.m.cfg.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
				return nil
			}
			return w.changed
		})
	}
}

func isInit(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

func (w *worker) holdsContainers(sandboxID string) bool {
	for _, c := range w.observed.containers {
		if c.sandboxID == sandboxID {
			return true
		}
	}
	return false
}

// expectChange has the observer look often while something is under way.
func (w *worker) expectChange() {
	if w.state == starting || len(w.jobs) > 0 || w.pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && w.state == running {
		w.m.observer.expect(5 * time.Second)
	}
}

// describeKill is the text of the Killing event.
func describeKill(name string) string { return fmt.Sprintf("Stopping container %s", name) }
