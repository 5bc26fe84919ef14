package pods

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/podspec"
)

// minGracePeriod is the minimum time to stop a container after its preStop hook.
const minGracePeriod = 2 * time.Second

// terminate stops the pod: it waits for the proxies, runs preStop hooks, stops the
// containers within the grace period and then stops the sandbox. It enters the
// state gone when nothing runs any more.
func (w *worker) terminate(ctx context.Context) {
	now := time.Now()
	if !w.termination.began {
		w.termination.began = true
		w.cancelStart()
		w.changed() // a container that was being started may exist
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
		if w.termination.drain(w.everReady, now) {
			w.containers.stopContainers(active)
		}
		return
	}
	w.probes.Keep(w.upstream, nil, true)
	for key := range w.running {
		if key != "drain" {
			return // the jobs wake the worker when they end
		}
	}
	if !w.termination.stopSandboxes(ctx, now) {
		return
	}
	if !w.claims.release(now) {
		return
	}
	w.m.releaseDevices(w.uid)
	w.m.released(w.uid) // all before the status: the scheduler gives the share away when it sees that
	if !finalPhase(w.pod.Status.Phase) || !w.observed.empty() {
		w.publish(true)
	}
	w.enter(gone)
}

// gracePeriod returns how long containers get between SIGTERM and SIGKILL.
func gracePeriod(pod *corev1.Pod) time.Duration {
	if pod.DeletionGracePeriodSeconds != nil {
		return time.Duration(max(*pod.DeletionGracePeriodSeconds, 0)) * time.Second
	}
	return specGracePeriod(pod)
}

// specGracePeriod returns the grace period in the pod's spec.
func specGracePeriod(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(max(seconds, 0)) * time.Second
}

// drain starts a job that waits until no proxy sends new traffic to the pod, at most
// for the grace period. It returns true when that is done or not needed.
func (t *termination) drain(wasReady bool, now time.Time) bool {
	grace := gracePeriod(t.pod)
	if t.drained || !wasReady || t.pod.DeletionTimestamp == nil || grace == 0 || t.m.cfg.Endpoints == nil {
		t.drained = true
		if cancel := t.running["drain"]; cancel != nil {
			cancel()
		}
		return true
	}
	pod, limit := t.pod, min(t.m.cfg.DrainTimeout, grace)
	t.job(t.upstream, "drain", func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		drained := drain(ctx, t.m.cfg.Endpoints, pod)
		return func() {
			t.log.Debug("out of rotation", "confirmed", drained, "took", time.Since(now))
			t.drained = true
		}
	})
	return false
}

// stopContainers stops all containers at once, except that sidecars wait for their
// turns. If the grace period became shorter,
// it cancels the running stops and stops again with the new one.
func (cs *containers) stopContainers(active []*container) {
	grace := gracePeriod(cs.pod)
	if cs.isRemoved && cs.pod.DeletionGracePeriodSeconds == nil && cs.pod.Spec.TerminationGracePeriodSeconds == nil {
		grace = minGracePeriod
	}
	if cs.verdict != nil && cs.verdict.grace != nil {
		grace = min(grace, *cs.verdict.grace)
	}
	cs.giveTurns(active)
	for _, c := range active {
		if cancel := cs.running[stopKey(c.id)]; cancel != nil {
			if grace < cs.stops[c.id].grace {
				cancel() // the job's end brings the worker back here
			}
			continue
		}
		cs.stopContainer(c, grace, describeKill(c.name), cs.turns[c.id])
	}
}

// stop is the state of stopping a container.
type stop struct {
	grace  time.Duration
	hooked bool // its preStop hook has run
}

func stopKey(containerID string) string { return "stop " + containerID }

// kill stops one container although the pod is to run; its restart follows.
func (cs *containers) kill(k kill) {
	grace := gracePeriod(cs.pod)
	if spec := podspec.Container(cs.pod, k.container.name); spec != nil {
		probe := spec.LivenessProbe
		if k.reason == killStartup {
			probe = spec.StartupProbe
		}
		if (k.reason == killStartup || k.reason == killLiveness) && probe != nil && probe.TerminationGracePeriodSeconds != nil {
			grace = time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
		}
	}
	cs.stopContainer(k.container, grace, k.message, nil)
}

// giveTurns lets sidecars stop in the reverse order of their start, after all app
// containers: each when those that started after it have exited.
func (cs *containers) giveTurns(active []*container) {
	byName := map[string]*container{}
	later := false
	for _, c := range active {
		switch {
		case isSidecar(cs.pod, c.name):
			byName[c.name] = c
		case podspec.Ephemeral(cs.pod, c.name) == nil:
			later = true
		}
	}
	for _, spec := range slices.Backward(cs.pod.Spec.InitContainers) {
		c := byName[spec.Name]
		if c == nil {
			continue
		}
		turn := cs.turns[c.id]
		if turn == nil {
			turn = make(chan struct{})
			cs.turns[c.id] = turn
		}
		if !later && !closed(turn) {
			close(turn)
		}
		later = true
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await waits until c is closed or ctx ends, at most for the grace period. It returns
// the rest of that. A nil c is not waited for.
func await(ctx context.Context, c <-chan struct{}, grace time.Duration) time.Duration {
	if c == nil || grace == 0 {
		return grace
	}
	began := time.Now()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	case <-ctx.Done():
	}
	return max(grace-time.Since(began), minGracePeriod)
}

// stopContainer starts a job that runs the preStop hook, waits for the container's turn
// and stops it. turn may be nil.
func (cs *containers) stopContainer(c *container, grace time.Duration, message string, turn <-chan struct{}) {
	key := stopKey(c.id)
	if cs.busy(key) || !cs.retries.due(key, time.Now()) {
		return
	}
	spec := podspec.Container(cs.pod, c.name)
	if spec == nil {
		spec = &corev1.Container{Name: c.name}
	}
	before := cs.stops[c.id]
	cs.stops[c.id] = stop{grace: grace, hooked: before.hooked}
	if before == (stop{}) {
		cs.containerEvent(spec, corev1.EventTypeNormal, "Killing", message)
	}
	var hook *corev1.LifecycleHandler
	if !before.hooked {
		hook = preStopOf(spec, c)
	}
	pod := cs.withAddresses()
	cs.job(cs.upstream, key, func(ctx context.Context) func() {
		left := cs.preStop(ctx, pod, spec, c.id, hook, grace)
		hooked := ctx.Err() == nil
		left = await(ctx, turn, left)
		var err error
		if ctx.Err() == nil {
			_, err = cs.m.cfg.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: int64((left + time.Second - 1) / time.Second)})
		}
		canceled := ctx.Err() != nil
		return func() {
			cs.changed()
			cs.stops[c.id] = stop{grace: grace, hooked: hooked}
			if err != nil && !cri.NotFound(err) && !canceled {
				cs.log.Warn("stop container failed", "container", c.name, "error", err)
				cs.retries.fail(key, time.Now(), time.Second, 10*time.Second)
				return
			}
			cs.retries.ok(key)
		}
	})
}

// preStop runs the hook, if any, and returns the rest of the grace period.
func (cs *containers) preStop(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, id string, hook *corev1.LifecycleHandler, grace time.Duration) time.Duration {
	if hook == nil || grace == 0 {
		return grace
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := cs.m.hook(ctx, pod, spec, id, hook); err != nil && !errors.Is(err, context.Canceled) {
		cs.log.Warn("preStop hook failed", "container", spec.Name, "error", err)
		cs.m.cfg.Events.EventOn(pod, images.FieldPath(pod, spec.Name), corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	return max(grace-time.Since(began), minGracePeriod)
}

// preStopOf returns the preStop hook from the spec or, if the API no longer has the
// pod, from the container's annotations; nil if there is none.
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

// orphanGracePeriod returns the grace period of a pod that only the runtime has; nil if it
// is not recorded.
func orphanGracePeriod(annotations map[string]string) *int64 {
	n, err := strconv.ParseInt(annotations[cri.AnnotationGracePeriod], 10, 64)
	if err != nil {
		return nil
	}
	return &n
}
