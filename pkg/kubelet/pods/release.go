package pods

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// termination releases the resources of a pod and records how far that has come.
type termination struct {
	*base
	began       bool
	drained     bool // the proxies send no new traffic to the pod
	stopped     bool // its sandboxes are stopped
	released    bool // its volumes and its cgroup are removed
	deleteSent  time.Time
	deletedOnce bool
}

// stopSandboxes stops the pod's sandboxes, which tears down its network. It returns
// true when all are stopped.
func (t *termination) stopSandboxes(ctx context.Context, now time.Time) bool {
	if t.stopped {
		return true
	}
	if !t.retries.due("stop sandbox", now) {
		return false
	}
	for _, box := range t.observed.sandboxes {
		if _, err := t.m.cfg.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box.id}); err != nil && !cri.NotFound(err) {
			if ctx.Err() == nil {
				t.log.Warn("stop pod sandbox failed", "error", err)
				t.event(corev1.EventTypeWarning, "FailedKillPod", fmt.Sprintf("error killing pod: failed to \"KillPodSandbox\" for %q with KillPodSandboxError: %q", t.uid, err))
			}
			t.retries.fail("stop sandbox", now, time.Second, 10*time.Second)
			return false
		}
	}
	t.retries.ok("stop sandbox")
	t.stopped = true
	return true
}

// release releases what the pod holds on the node. For a deleted pod it also
// removes the sandboxes and, once the final status is written, deletes the pod in
// the API. Of an evicted pod it removes them and the logs once that is written: the
// pod remains in the API, but not on the disk. It returns true when nothing is left to
// do for the pod.
func (w *worker) release(ctx context.Context) (done bool) {
	now := time.Now()
	deleted := w.isRemoved || w.pod.DeletionTimestamp != nil
	evicted := w.evicted() && w.m.writer.flushed(w.uid)
	if deleted || evicted {
		if len(w.observed.active()) > 0 { // a container that the runtime did not report before
			w.termination.stopped = false
			w.enter(terminating)
			w.wake()
			return false
		}
		if !w.termination.removeSandboxes(ctx, now) {
			return false
		}
	}
	if !w.termination.releaseNode(ctx, now) {
		return false
	}
	switch {
	case w.isRemoved:
		w.termination.removeFiles()
		return true
	case deleted && w.m.writer.flushed(w.uid): // the writer wakes the worker when the status is written
		w.termination.removeFiles()
		w.termination.deleteForGood(ctx, now)
	case evicted:
		w.termination.removeFiles()
	}
	return false
}

// releaseNode tears down the volumes and removes the cgroup. It returns true when
// that is done.
func (t *termination) releaseNode(ctx context.Context, now time.Time) bool {
	if t.released {
		return true
	}
	if !t.retries.due("release", now) {
		return false
	}
	if t.m.cfg.References != nil {
		t.m.cfg.References.Forget(t.uid)
	}
	err := t.m.cfg.Volumes.TearDown(ctx, t.uid)
	if err != nil && ctx.Err() == nil {
		t.event(corev1.EventTypeWarning, "FailedUnMount", err.Error())
	}
	if err == nil {
		err = t.m.cfg.Cgroups.Remove(ctx, t.uid)
	}
	if err == nil && t.m.cfg.UserNS != nil {
		err = t.m.cfg.UserNS.Release(t.uid)
	}
	if err != nil {
		if ctx.Err() == nil {
			t.log.Warn("clean up pod failed", "error", err)
		}
		t.retries.fail("release", now, time.Second, 30*time.Second)
		return false
	}
	t.retries.ok("release")
	t.released = true
	return true
}

// removeSandboxes removes the pod's containers and sandboxes from the runtime. It
// returns true when the runtime has none of them.
func (t *termination) removeSandboxes(ctx context.Context, now time.Time) bool {
	if t.observed.empty() {
		return true
	}
	if !t.retries.due("remove", now) {
		return false
	}
	remove := func() error {
		for _, c := range t.observed.containers {
			if err := t.m.unlinkLog(t.logged(c)); err != nil {
				t.log.Warn("remove link to log failed", "error", err) // it will be found to lead nowhere
			}
			if _, err := t.m.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.id}); err != nil && !cri.NotFound(err) {
				return err
			}
		}
		for _, box := range t.observed.sandboxes {
			if _, err := t.m.cfg.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box.id}); err != nil && !cri.NotFound(err) {
				return err
			}
		}
		return nil
	}
	if err := remove(); err != nil {
		if ctx.Err() == nil {
			t.log.Warn("remove pod sandbox failed", "error", err)
		}
		t.retries.fail("remove", now, time.Second, 10*time.Second)
		t.changed()
		return false
	}
	t.retries.ok("remove")
	t.observed = observed{}
	return true
}

// removeFiles removes the files that the kubelet wrote for the pod. Its volumes have
// been torn down before.
func (t *termination) removeFiles() {
	dir := t.m.podDir(t.uid)
	for _, path := range []string{t.m.hostsPath(t.uid), filepath.Join(dir, "containers"), t.m.allocationPath(t.uid), t.m.logDir(t.pod), filepath.Join(dir, identityFile)} {
		if err := os.RemoveAll(path); err != nil {
			t.log.Warn("remove pod files failed", "error", err)
		}
	}
	_ = os.Remove(dir) // fails if something else is in it
}

// deleteForGood deletes the pod in the API without a grace period. A pod with
// finalizers remains there until they are removed.
func (t *termination) deleteForGood(ctx context.Context, now time.Time) {
	if !t.deleteSent.IsZero() && now.Before(t.deleteSent.Add(30*time.Second)) || !t.retries.due("delete", now) {
		return
	}
	if t.deletedOnce && t.pod.DeletionGracePeriodSeconds != nil && *t.pod.DeletionGracePeriodSeconds == 0 {
		return
	}
	if err := t.m.cfg.API.DeletePod(ctx, t.pod.Namespace, t.pod.Name, t.uid); err != nil {
		if ctx.Err() == nil {
			t.log.Warn("delete pod failed", "error", err)
		}
		t.retries.fail("delete", now, 200*time.Millisecond, 10*time.Second)
		return
	}
	t.retries.ok("delete")
	t.deleteSent, t.deletedOnce = now, true
	t.again(now.Add(30 * time.Second))
}
