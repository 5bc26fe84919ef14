package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/probes"
)

// sync brings the pod nearer to what it should be, and says how it is. ctx ends
// when the pod is to end.
func (w *worker) sync(ctx context.Context) {
	now := time.Now()
	w.plan = decide(w.pod, w.observed, w.judge, now)
	if w.plan.newSandbox && len(w.plan.kill) == 0 && w.retries.due("sandbox", now) {
		w.publish(false) // ContainerCreating
		if w.makeSandbox(ctx) {
			w.plan = decide(w.pod, w.observed, w.judge, time.Now())
		}
	}
	if w.plan.finished && len(w.observed.active()) == 0 {
		w.enter(terminating)
		return
	}
	for _, k := range w.plan.kill {
		w.kill(k)
	}
	w.explainBackOff()
	if !w.plan.newSandbox {
		w.keepMounts(ctx)
		w.startContainers(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	w.enter(starting)
	if w.plan.initialized && len(w.plan.start) == 0 {
		w.enter(running)
	}
	w.probes.Keep(w.upstream, w.targets(), false)
	w.publish(false)
	w.again(w.plan.wake())
	w.refreshMounts(now)
	w.measureStorage(now)
	w.removeOld()
	w.expectChange()
}

// judge is what the probes say of a container.
func (w *worker) judge(id string) probeVerdict {
	switch w.probes.Failed(id) {
	case probes.Liveness:
		return probeLivenessFailed
	case probes.Startup:
		return probeStartupFailed
	}
	return probeFine
}

// explainBackOff keeps the waiting reasons of containers in a crash loop.
func (w *worker) explainBackOff() {
	for name, why := range w.waiting {
		if _, still := w.plan.waiting[name]; why.Reason == reasonCrashLoop && !still {
			delete(w.waiting, name)
		}
	}
	for name, wait := range w.plan.waiting {
		message := crashMessage(w.pod, name, wait.delay)
		if w.waiting[name].Message == message {
			continue
		}
		w.waiting[name] = corev1.ContainerStateWaiting{Reason: reasonCrashLoop, Message: message}
		w.m.cfg.Events.EventOn(w.pod, images.FieldPath(w.pod, name), corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s", name, describe(w.pod)))
	}
}

// makeSandbox does what does not depend on each other at once: the sandbox, the
// volumes, and asking for the images.
func (w *worker) makeSandbox(ctx context.Context) bool {
	if box := w.observed.current(); box != nil && w.told != box.id {
		w.told = box.id
		w.event(corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	for _, old := range w.observed.sandboxes {
		if _, err := w.m.cfg.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: old.id}); err != nil {
			w.sandboxFailed(fmt.Errorf("stop the old sandbox: %w", err))
			return false
		}
	}
	type made struct {
		box sandbox
		err error
	}
	result := make(chan made, 1)
	go func() {
		box, err := w.runSandbox(ctx)
		result <- made{box, err}
	}()
	w.prefetch(ctx)
	w.keepMounts(ctx)
	got := <-result
	if got.err != nil {
		w.sandboxFailed(got.err)
		return false
	}
	w.retries.ok("sandbox")
	w.observed.sandboxes = append([]sandbox{got.box}, w.observed.sandboxes...)
	return true
}

func (w *worker) sandboxFailed(err error) {
	w.retries.fail("sandbox", time.Now(), time.Second, 10*time.Second)
	w.changed() // a half-made sandbox may be there
	if w.startCtx.Err() != nil {
		return
	}
	w.log.Warn("pod sandbox not made", "error", err)
	w.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
}

func (w *worker) runSandbox(ctx context.Context) (sandbox, error) {
	cfg := &w.m.cfg
	parent, err := cfg.Cgroups.Ensure(ctx, w.pod)
	if err != nil {
		return sandbox{}, err
	}
	w.parent = parent
	attempt := w.plan.sandboxAttempt
	config, err := w.m.sandboxConfig(w.pod, attempt, parent)
	if err != nil {
		return sandbox{}, err
	}
	if err := errors.Join(makeLogDir(config.LogDirectory), w.m.writeIdentity(w.pod)); err != nil {
		return sandbox{}, err
	}
	created := time.Now()
	res, err := cfg.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return sandbox{}, err
	}
	ips, err := reader{cfg.Runtime}.ips(ctx, res.PodSandboxId)
	if err != nil {
		return sandbox{}, err
	}
	if len(ips) == 0 && !w.pod.Spec.HostNetwork {
		return sandbox{}, errors.New("the sandbox has no address")
	}
	return sandbox{id: res.PodSandboxId, ready: true, attempt: attempt, created: created, ips: ips}, nil
}

// prefetch asks for the images of the containers that come first, so that pulls
// run beside everything else.
func (w *worker) prefetch(ctx context.Context) {
	list := w.pod.Spec.Containers
	if inits := w.pod.Spec.InitContainers; len(inits) > 0 {
		list = inits[:1]
	}
	for i := range list {
		attempt := nextAttempt(w.pod, w.observed, list[i].Name)
		_, _ = w.m.puller.Ensure(ctx, w.pod, &list[i], startKey(list[i].Name, attempt)) // asked again, and heard, when it is needed
	}
}

func startKey(name string, attempt int32) string { return fmt.Sprintf("%s/%d", name, attempt) }

// keepMounts sets the volumes up before a container needs them, and keeps
// their contents up to date from then on.
func (w *worker) keepMounts(ctx context.Context) {
	now := time.Now()
	if w.mounts == nil {
		if len(w.plan.start) == 0 && !w.plan.newSandbox || !w.retries.due("volumes", now) {
			return
		}
		mounts, err := w.m.cfg.Volumes.SetUp(ctx, w.pod)
		if err != nil {
			if ctx.Err() == nil {
				w.event(corev1.EventTypeWarning, "FailedMount", err.Error())
				w.log.Warn("volumes not set up", "error", err)
			}
			w.retries.fail("volumes", now, 500*time.Millisecond, 10*time.Second)
			return
		}
		w.retries.ok("volumes")
		w.mounts, w.refreshed, w.shown = mounts, now, w.pod
	}
}

// refreshMounts brings what volumes show up to date, beside the worker: now and
// then, and when the pod's labels or annotations, which they may show, change.
func (w *worker) refreshMounts(now time.Time) {
	if !refreshable(w.pod) || w.state != running {
		return
	}
	if due := w.refreshed.Add(w.m.cfg.RefreshPeriod); now.Before(due) && !relabelled(w.shown, w.pod) {
		w.again(due)
		return
	}
	if _, busy := w.jobs["refresh"]; busy {
		return // its end wakes us
	}
	w.refreshed, w.shown = now, w.pod
	pod, known := w.pod, w.mounts != nil
	w.job(w.startCtx, "refresh", func(ctx context.Context) func() {
		if known {
			w.refreshFailed(ctx, w.m.cfg.Volumes.Refresh(ctx, pod))
			return nil
		}
		// Another kubelet has set them up: this one makes them its own.
		mounts, err := w.m.cfg.Volumes.SetUp(ctx, pod)
		w.refreshFailed(ctx, err)
		return func() {
			if err == nil && w.mounts == nil {
				w.mounts = mounts
			}
		}
	})
	w.again(now.Add(w.m.cfg.RefreshPeriod))
}

// relabelled says that the pod's labels or annotations are not those of before.
func relabelled(before, now *corev1.Pod) bool {
	return before != nil && (!maps.Equal(before.Labels, now.Labels) || !maps.Equal(before.Annotations, now.Annotations))
}

func (w *worker) refreshFailed(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		w.log.Warn("volumes not refreshed", "error", err)
	}
}

// refreshable says that the pod has volumes whose contents can change.
func refreshable(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil {
			return true
		}
	}
	return false
}

// startContainers starts what the plan says, in its order: a container whose
// image is on its way, or whose postStart hook runs, holds up the next.
func (w *worker) startContainers(ctx context.Context) {
	if len(w.plan.start) > 0 && w.mounts == nil {
		return
	}
	for len(w.plan.start) > 0 && ctx.Err() == nil {
		s := w.plan.start[0]
		if _, hooking := w.jobs["postStart"]; hooking {
			return
		}
		if !w.startContainer(ctx, s) {
			return
		}
		w.plan.start = w.plan.start[1:]
		if s.init && len(w.plan.start) == 0 {
			w.plan = decide(w.pod, w.observed, w.judge, time.Now()) // it may be over already
			if next := w.plan.start; len(next) > 0 && next[0].spec.Name == s.spec.Name && next[0].attempt == s.attempt {
				return // it could not be started: its time will come
			}
		}
	}
}

// targets are the running containers, for their probes.
func (w *worker) targets() []probes.Target {
	pod := w.withAddresses()
	var out []probes.Target
	for i := range pod.Spec.Containers {
		spec := &pod.Spec.Containers[i]
		c := w.observed.latest(spec.Name)
		if c == nil || !c.running() {
			continue
		}
		t := probes.Target{Pod: pod, Container: spec, ID: c.id, Started: c.started}
		for j := range w.pod.Status.ContainerStatuses {
			if s := &w.pod.Status.ContainerStatuses[j]; s.ContainerID == w.m.cfg.RuntimeName+"://"+c.id {
				t.WasReady = s.Ready
				t.WasStarted = s.Started != nil && *s.Started
			}
		}
		out = append(out, t)
	}
	return out
}

// withAddresses is the pod with its addresses in its status, which the API may
// not have yet.
func (w *worker) withAddresses() *corev1.Pod {
	pod := *w.pod
	v := view{pod: w.pod, observed: w.observed, hostIPs: w.m.cfg.HostIPs()}
	v.addresses(&pod.Status)
	return &pod
}
