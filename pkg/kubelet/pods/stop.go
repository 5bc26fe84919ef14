package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/images"
)

// minGrace is what a container gets after its preStop hook took all the time there was.
const minGrace = 2 * time.Second

// ending is how far a pod's end has come.
type ending struct {
	began       bool
	drained     bool // no proxy sends it anything new
	stopped     bool // its sandboxes are stopped
	released    bool // its volumes and cgroup are gone
	deleteSent  time.Time
	deletedOnce bool
}

// terminate stops the pod: out of rotation, hooks, SIGTERM, the grace period,
// then the sandbox. It goes on to gone when nothing runs any more.
func (w *worker) terminate(ctx context.Context) {
	now := time.Now()
	if !w.end.began {
		w.end.began = true
		w.cancelStart()
		w.changed() // what was being started may be there
		if w.read {
			w.read = false
			return
		}
	}
	active := w.observed.active()
	if len(active) > 0 {
		w.probes.Keep(w.upstream, w.targets(), true)
		w.publish(false)
		w.m.observer.expect(5 * time.Second)
		if w.drain(now) {
			w.stopContainers(active)
		}
		return
	}
	w.probes.Keep(w.upstream, nil, true)
	for key := range w.jobs {
		if key != "drain" {
			return // their ends wake us
		}
	}
	if !w.stopSandboxes(ctx, now) {
		return
	}
	if !finalPhase(w.pod.Status.Phase) || !w.observed.empty() {
		w.publish(true)
	}
	w.enter(gone)
}

// gracePeriod is how long containers get between SIGTERM and SIGKILL.
func gracePeriod(pod *corev1.Pod) time.Duration {
	if pod.DeletionGracePeriodSeconds != nil {
		return time.Duration(max(*pod.DeletionGracePeriodSeconds, 0)) * time.Second
	}
	return specGrace(pod)
}

// specGrace is the grace period the pod was made with.
func specGrace(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(max(seconds, 0)) * time.Second
}

// drain waits, within the grace period, until no proxy has the pod in rotation.
func (w *worker) drain(now time.Time) bool {
	grace := gracePeriod(w.pod)
	if w.end.drained || !w.everReady || w.pod.DeletionTimestamp == nil || grace == 0 || w.m.cfg.Endpoints == nil {
		w.end.drained = true
		if cancel := w.jobs["drain"]; cancel != nil {
			cancel()
		}
		return true
	}
	pod, limit := w.pod, min(w.m.cfg.DrainTimeout, grace)
	w.job(w.upstream, "drain", func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		drained := drain(ctx, w.m.cfg.Endpoints, pod)
		return func() {
			w.log.Debug("out of rotation", "confirmed", drained, "took", time.Since(now))
			w.end.drained = true
		}
	})
	return false
}

// stopContainers stops what runs, all at once. A grace period that became
// shorter meanwhile starts the stops anew with it.
func (w *worker) stopContainers(active []*container) {
	grace := gracePeriod(w.pod)
	if w.isRemoved && w.pod.DeletionGracePeriodSeconds == nil && w.pod.Spec.TerminationGracePeriodSeconds == nil {
		grace = minGrace
	}
	if w.verdict != nil && w.verdict.evicted {
		grace = min(grace, evictionGrace)
	}
	for _, c := range active {
		if cancel := w.jobs[stopKey(c.id)]; cancel != nil {
			if grace < w.stops[c.id].grace {
				cancel() // its end brings us back here
			}
			continue
		}
		w.stopContainer(c, grace, describeKill(c.name))
	}
}

// stop is how a container is being stopped.
type stop struct {
	grace  time.Duration
	hooked bool // its preStop hook has run
}

func stopKey(containerID string) string { return "stop " + containerID }

// kill stops one container that must not go on, so that it can be started again.
func (w *worker) kill(k kill) {
	grace := gracePeriod(w.pod)
	if spec := specOf(w.pod, k.container.name); spec != nil {
		probe := spec.LivenessProbe
		if k.reason == killStartup {
			probe = spec.StartupProbe
		}
		if (k.reason == killStartup || k.reason == killLiveness) && probe != nil && probe.TerminationGracePeriodSeconds != nil {
			grace = time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
		}
	}
	w.stopContainer(k.container, grace, k.message)
}

func specOf(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// stopContainer runs the preStop hook and stops the container, beside the worker.
func (w *worker) stopContainer(c *container, grace time.Duration, message string) {
	key := stopKey(c.id)
	if _, busy := w.jobs[key]; busy || !w.retries.due(key, time.Now()) {
		return
	}
	spec := specOf(w.pod, c.name)
	if spec == nil {
		spec = &corev1.Container{Name: c.name}
	}
	before := w.stops[c.id]
	w.stops[c.id] = stop{grace: grace, hooked: before.hooked}
	if before == (stop{}) {
		w.containerEvent(spec, corev1.EventTypeNormal, "Killing", message)
	}
	var hook *corev1.LifecycleHandler
	if !before.hooked {
		hook = preStopOf(spec, c)
	}
	pod := w.withAddresses()
	w.job(w.upstream, key, func(ctx context.Context) func() {
		left := w.preStop(ctx, pod, spec, c.id, hook, grace)
		hooked := ctx.Err() == nil
		var err error
		if hooked {
			_, err = w.m.cfg.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: int64((left + time.Second - 1) / time.Second)})
		}
		canceled := ctx.Err() != nil
		return func() {
			w.changed()
			w.stops[c.id] = stop{grace: grace, hooked: hooked}
			if err != nil && !cri.NotFound(err) && !canceled {
				w.log.Warn("container not stopped", "container", c.name, "error", err)
				w.retries.fail(key, time.Now(), time.Second, 10*time.Second)
				return
			}
			w.retries.ok(key)
		}
	})
}

// preStop runs the hook, if there is one, and says what is left of the grace period.
func (w *worker) preStop(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, id string, hook *corev1.LifecycleHandler, grace time.Duration) time.Duration {
	if hook == nil || grace == 0 {
		return grace
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := w.m.hook(ctx, pod, spec, id, hook); err != nil && !errors.Is(err, context.Canceled) {
		w.log.Warn("preStop hook failed", "container", spec.Name, "error", err)
		w.m.cfg.Events.EventOn(pod, images.FieldPath(pod, spec.Name), corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	return max(grace-time.Since(began), minGrace)
}

// preStopOf finds the hook in the spec, or, when the API has the pod no more,
// in what the container itself carries.
func preStopOf(spec *corev1.Container, c *container) *corev1.LifecycleHandler {
	if spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil {
		return spec.Lifecycle.PreStop
	}
	text := c.annotations[cri.AnnotationPreStop]
	if text == "" || spec.Image != "" {
		return nil
	}
	var h corev1.LifecycleHandler
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil
	}
	return &h
}

// stopSandboxes takes down the pod's network.
func (w *worker) stopSandboxes(ctx context.Context, now time.Time) bool {
	if w.end.stopped {
		return true
	}
	if !w.retries.due("stop sandbox", now) {
		return false
	}
	for _, box := range w.observed.sandboxes {
		if _, err := w.m.cfg.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box.id}); err != nil && !cri.NotFound(err) {
			if ctx.Err() == nil {
				w.log.Warn("pod sandbox not stopped", "error", err)
				w.event(corev1.EventTypeWarning, "FailedKillPod", fmt.Sprintf("error killing pod: failed to \"KillPodSandbox\" for %q with KillPodSandboxError: %q", w.uid, err))
			}
			w.retries.fail("stop sandbox", now, time.Second, 10*time.Second)
			return false
		}
	}
	w.retries.ok("stop sandbox")
	w.end.stopped = true
	return true
}

// release gives back what the pod held. A deleted pod leaves nothing: then, and
// when the API knows how it ended, it is deleted there for good. True when
// there is nothing left to do, ever.
func (w *worker) release(ctx context.Context) (done bool) {
	now := time.Now()
	deleted := w.isRemoved || w.pod.DeletionTimestamp != nil
	if deleted {
		if len(w.observed.active()) > 0 { // something came back from the dead
			w.end.stopped = false
			w.enter(terminating)
			w.wake()
			return false
		}
		if !w.removeSandboxes(ctx, now) {
			return false
		}
	}
	if !w.releaseNode(ctx, now) || !deleted {
		return false
	}
	if w.isRemoved {
		w.removeFiles()
		return true
	}
	if !w.m.writer.flushed(w.uid) {
		return false // the writer wakes us
	}
	w.removeFiles()
	w.deleteForGood(ctx, now)
	return false
}

// releaseNode tears volumes down and removes the cgroup.
func (w *worker) releaseNode(ctx context.Context, now time.Time) bool {
	if w.end.released {
		return true
	}
	if !w.retries.due("release", now) {
		return false
	}
	err := w.m.cfg.Volumes.TearDown(ctx, w.uid)
	if err != nil && ctx.Err() == nil {
		w.event(corev1.EventTypeWarning, "FailedUnMount", err.Error())
	}
	if err == nil {
		err = w.m.cfg.Cgroups.Remove(ctx, w.uid)
	}
	if err == nil && w.m.cfg.UserNS != nil {
		err = w.m.cfg.UserNS.Release(w.uid)
	}
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("pod not cleaned up", "error", err)
		}
		w.retries.fail("release", now, time.Second, 30*time.Second)
		return false
	}
	w.retries.ok("release")
	w.end.released = true
	w.m.released(w.uid)
	return true
}

func (w *worker) removeSandboxes(ctx context.Context, now time.Time) bool {
	if w.observed.empty() {
		return true
	}
	if !w.retries.due("remove", now) {
		return false
	}
	remove := func() error {
		for _, c := range w.observed.containers {
			if _, err := w.m.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.id}); err != nil && !cri.NotFound(err) {
				return err
			}
		}
		for _, box := range w.observed.sandboxes {
			if _, err := w.m.cfg.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box.id}); err != nil && !cri.NotFound(err) {
				return err
			}
		}
		return nil
	}
	if err := remove(); err != nil {
		if ctx.Err() == nil {
			w.log.Warn("pod sandbox not removed", "error", err)
		}
		w.retries.fail("remove", now, time.Second, 10*time.Second)
		w.changed()
		return false
	}
	w.retries.ok("remove")
	w.observed = observed{}
	return true
}

// removeFiles removes what the kubelet wrote for the pod. Volumes have gone before.
func (w *worker) removeFiles() {
	dir := w.m.podDir(w.uid)
	for _, path := range []string{filepath.Join(dir, "etc-hosts"), filepath.Join(dir, "containers"), w.m.logDir(w.pod), filepath.Join(dir, identityFile)} {
		if err := os.RemoveAll(path); err != nil {
			w.log.Warn("pod's files not removed", "error", err)
		}
	}
	_ = os.Remove(dir) // not if something else is in it
}

// deleteForGood ends the pod's life in the API. A pod with finalizers stays
// there until others are done with it.
func (w *worker) deleteForGood(ctx context.Context, now time.Time) {
	if !w.end.deleteSent.IsZero() && now.Before(w.end.deleteSent.Add(30*time.Second)) || !w.retries.due("delete", now) {
		return
	}
	if w.end.deletedOnce && w.pod.DeletionGracePeriodSeconds != nil && *w.pod.DeletionGracePeriodSeconds == 0 {
		return
	}
	if err := w.m.cfg.API.DeletePod(ctx, w.pod.Namespace, w.pod.Name, w.uid); err != nil {
		if ctx.Err() == nil {
			w.log.Warn("pod not deleted for good", "error", err)
		}
		w.retries.fail("delete", now, 200*time.Millisecond, 10*time.Second)
		return
	}
	w.retries.ok("delete")
	w.end.deleteSent, w.end.deletedOnce = now, true
	w.again(now.Add(30 * time.Second))
}

// orphanGrace is the grace period a pod that only the runtime knows was made with.
func orphanGrace(annotations map[string]string) *int64 {
	n, err := strconv.ParseInt(annotations[cri.AnnotationGracePeriod], 10, 64)
	if err != nil {
		return nil
	}
	return &n
}
