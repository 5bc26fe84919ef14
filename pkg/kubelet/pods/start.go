package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/podspec"
)

// sync moves the pod towards its spec and publishes its status. ctx ends when the
// pod is to be terminated.
func (w *worker) sync(ctx context.Context) {
	now, cs := time.Now(), w.containers
	cs.plan = decide(w.pod, w.observed, w.judge, now, w.m.cfg.MaxRestartDelay)
	if cs.plan.newSandbox && len(cs.plan.kill) == 0 && w.retries.due("sandbox", now) && w.claims.forSandbox(now) {
		w.publish(false) // ContainerCreating
		if cs.makeSandbox(ctx) {
			w.claims.fresh = false
			cs.plan = decide(w.pod, w.observed, w.judge, time.Now(), w.m.cfg.MaxRestartDelay)
		}
	}
	if cs.plan.finished && !w.mainActive() {
		w.enter(terminating)
		return
	}
	w.killPlanned(now)
	w.resizer.actuate(ctx, now)
	cs.explainBackOff()
	if !cs.plan.newSandbox && len(cs.plan.start)+len(cs.plan.ephemeral) > 0 && w.mounts.setUpAll() && w.claims.forContainers(now) {
		for _, s := range cs.plan.ephemeral {
			cs.startContainer(ctx, s)
		}
		cs.startContainers(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	w.enter(starting)
	if cs.plan.initialized && len(cs.plan.start) == 0 {
		w.enter(running)
	}
	w.probes.Keep(w.upstream, w.targets(), false)
	w.publish(false)
	w.again(cs.plan.wake())
	if !cs.plan.newSandbox {
		w.mounts.refresh(now, len(cs.plan.start) == 0)
	}
	w.measureStorage(now)
	cs.removeOld()
	w.expectChange()
}

// killPlanned stops the containers that must not go on as they are.
func (w *worker) killPlanned(now time.Time) {
	for _, k := range w.containers.plan.kill {
		if k.reason == killChanged {
			if err := w.resizer.replace(k.container); err != nil {
				w.log.Warn("record container to be replaced failed", "container", k.container.name, "error", err)
				w.again(now.Add(time.Second))
				continue
			}
		}
		w.containers.kill(k)
	}
}

// mainActive reports whether a container is active that is neither a sidecar nor
// ephemeral: these do not keep a pod from ending.
func (w *worker) mainActive() bool {
	return slices.ContainsFunc(w.observed.active(), func(c *container) bool {
		return !isSidecar(w.pod, c.name) && podspec.Ephemeral(w.pod, c.name) == nil
	})
}

// explainBackOff updates the waiting reasons of containers in CrashLoopBackOff.
func (cs *containers) explainBackOff() {
	for name, why := range cs.waiting {
		if _, still := cs.plan.waiting[name]; why.Reason == reasonCrashLoop && !still {
			delete(cs.waiting, name)
		}
	}
	for name, wait := range cs.plan.waiting {
		message := crashMessage(cs.pod, name, wait.delay)
		if cs.waiting[name].Message == message {
			continue
		}
		cs.waiting[name] = corev1.ContainerStateWaiting{Reason: reasonCrashLoop, Message: message}
		cs.m.cfg.Events.EventOn(cs.pod, images.FieldPath(cs.pod, name), corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s", name, describe(cs.pod)))
	}
}

// makeSandbox creates the sandbox. It blocks; meanwhile image pulls and volume
// set-ups run. It returns false if the sandbox could not be created.
func (cs *containers) makeSandbox(ctx context.Context) bool {
	if box := cs.observed.current(); box != nil && cs.reportedSandbox != box.id {
		cs.reportedSandbox = box.id
		cs.event(corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	for _, old := range cs.observed.sandboxes {
		if _, err := cs.m.cfg.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: old.id}); err != nil {
			cs.sandboxFailed(fmt.Errorf("stop the old sandbox: %w", err))
			return false
		}
	}
	type made struct {
		box sandbox
		err error
	}
	result := make(chan made, 1)
	go func() {
		box, err := cs.runSandbox(ctx)
		result <- made{box, err}
	}()
	cs.prefetch(ctx)
	cs.mounts.setUpAll()
	got := <-result
	if got.err != nil {
		cs.sandboxFailed(got.err)
		return false
	}
	cs.retries.ok("sandbox")
	cs.observed.sandboxes = append([]sandbox{got.box}, cs.observed.sandboxes...)
	return true
}

// sandboxFailed reports a failed sandbox and starts its back-off.
func (cs *containers) sandboxFailed(err error) {
	cs.retries.fail("sandbox", time.Now(), time.Second, 10*time.Second)
	cs.changed() // a partly created sandbox may exist
	if cs.startCtx.Err() != nil {
		return
	}
	cs.log.Warn("run pod sandbox failed", "error", err)
	cs.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
}

// runSandbox creates the pod's cgroup, directories and sandbox. It blocks on the
// runtime and may run beside the worker's goroutine.
func (cs *containers) runSandbox(ctx context.Context) (sandbox, error) {
	cfg := &cs.m.cfg
	parent, err := cfg.Cgroups.Ensure(ctx, cs.pod)
	if err != nil {
		return sandbox{}, err
	}
	cs.parent = parent
	attempt := cs.plan.sandboxAttempt
	config, err := cs.m.sandboxConfig(cs.pod, attempt, parent)
	if err != nil {
		return sandbox{}, err
	}
	if err := errors.Join(makeLogDir(config.LogDirectory), cs.m.writeIdentity(cs.pod)); err != nil {
		return sandbox{}, err
	}
	handler, err := cs.m.handler(ctx, cs.pod)
	if err != nil {
		return sandbox{}, err
	}
	created := time.Now()
	res, err := cfg.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return sandbox{}, err
	}
	ips, err := reader{cfg.Runtime}.ips(ctx, res.PodSandboxId)
	if err != nil {
		return sandbox{}, err
	}
	if len(ips) == 0 && !cs.pod.Spec.HostNetwork {
		return sandbox{}, errors.New("the sandbox has no address")
	}
	return sandbox{id: res.PodSandboxId, ready: true, attempt: attempt, created: created, ips: ips}, nil
}

// prefetch starts the image pulls of the containers that start first, in parallel to
// the creation of the sandbox.
func (cs *containers) prefetch(ctx context.Context) {
	list := cs.pod.Spec.Containers
	if inits := cs.pod.Spec.InitContainers; len(inits) > 0 {
		list = inits[:1]
	}
	for i := range list {
		attempt := nextAttempt(cs.pod, cs.observed, list[i].Name)
		_, _ = cs.ensureImages(ctx, &list[i], startKey(list[i].Name, attempt)) // startContainer calls it again and handles the result
	}
}

// startKey identifies one start of a container for the image puller.
func startKey(name string, attempt int32) string { return fmt.Sprintf("%s/%d", name, attempt) }

// startContainers starts the planned containers in order. It stops at a container
// whose image is being pulled or whose postStart hook is running.
func (cs *containers) startContainers(ctx context.Context) {
	for len(cs.plan.start) > 0 && ctx.Err() == nil {
		s := cs.plan.start[0]
		if cs.busy("postStart") {
			return
		}
		if !cs.startContainer(ctx, s) {
			return
		}
		cs.plan.start = cs.plan.start[1:]
		if s.init && len(cs.plan.start) == 0 {
			cs.plan = decide(cs.pod, cs.observed, cs.judge, time.Now(), cs.m.cfg.MaxRestartDelay) // the init container may have exited already
			if next := cs.plan.start; len(next) > 0 && next[0].spec.Name == s.spec.Name && next[0].attempt == s.attempt {
				return // the start failed; it is retried after a back-off
			}
		}
	}
}
