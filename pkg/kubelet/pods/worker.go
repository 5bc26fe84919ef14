package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/conditions"
	"podium/pkg/wallclock"
)

type state string

const (
	pending     state = "pending"
	starting    state = "starting"
	running     state = "running"
	terminating state = "terminating"
	gone        state = "gone"
)

// A worker owns one pod. Its state only moves to the right, except that the end of a
// sandbox takes a running pod back to starting.
//
//	pending ──▶ starting ◀──▶ running ──▶ terminating ──▶ gone
//	   │            │                          ▲
//	   └────────────┴──────────────────────────┘
//
//	pending      the node has not decided yet whether it takes the pod (admit.go)
//	starting     sandbox, volumes, init containers (start.go, mounts.go)
//	running      containers are started, restarted, probed (start.go, container.go)
//	terminating  out of rotation, hooks, SIGTERM, grace period (stop.go)
//	gone         nothing runs; what is left is cleaned up, a deleted pod deleted for good (release.go)
//
// Each step compares the pod in the API, its state in the runtime and the results of
// its probes. Whatever may take long (pulls, volumes, hooks, stops) is a job: a
// goroutine whose end wakes the worker.
type worker struct {
	*base
	containers  *containers
	mounts      *mounts
	claims      *claims
	termination *termination
	resizer     *resizer

	state     state
	assigned  assignment
	everReady bool
	firstSeen time.Time
	fresh     bool          // no kubelet has begun it before, and it has not run yet
	began     time.Time     // the pod's start time, once it has one
	measured  time.Time     // when its storage was last measured
	ended     chan struct{} // closed when nothing of it runs and the API has its final status; see settled
}

// newWorker returns a worker. It ends when ctx ends.
func newWorker(m *Manager, ctx context.Context, pod *corev1.Pod) *worker {
	b := newBase(m, ctx, pod)
	w := &worker{
		base: b, mounts: &mounts{base: b, volumes: map[string]*mount{}}, state: pending,
		firstSeen: time.Now(), fresh: pod.Status.StartTime == nil, ended: make(chan struct{}), everReady: conditions.IsTrue(pod.Status.Conditions, corev1.PodReady),
	}
	w.containers = &containers{base: b, mounts: w.mounts, waiting: map[string]corev1.ContainerStateWaiting{}, stops: map[string]stop{}, turns: map[string]chan struct{}{}}
	w.termination = &termination{base: b}
	w.claims = &claims{base: b}
	w.resizer = &resizer{base: b, containers: w.containers}
	return w
}

// run blocks until the pod is gone from the API and from the node, or ctx ends.
func (w *worker) run() {
	ctx := w.upstream
	defer w.close()
	for {
		w.next = time.Time{}
		w.collect()
		if w.step(ctx) || ctx.Err() != nil {
			return
		}
		if !w.pause(ctx) {
			return
		}
	}
}

// close ends all goroutines of the worker and waits for them. It leaves the
// containers running.
func (w *worker) close() {
	w.cancelStart()
	for _, cancel := range w.running {
		cancel()
	}
	w.probes.Keep(w.upstream, nil, true)
	w.probes.Wait()
	w.working.Wait()
	if !closed(w.ended) {
		close(w.ended)
	}
}

// step does what can be done now. It returns true when nothing of the pod is left.
func (w *worker) step(ctx context.Context) (done bool) {
	now := time.Now()
	if !w.observe(ctx, now) || !w.resizer.load(now) {
		w.again(w.retries.next(now))
		return false
	}
	w.resizer.grant((w.state == starting || w.state == running) && w.pod.DeletionTimestamp == nil && !w.isRemoved, now)
	if w.state == pending {
		w.admit(ctx)
	}
	if (w.state == starting || w.state == running) && w.mustEnd(now) {
		w.enter(terminating)
	}
	if w.state == starting || w.state == running {
		w.sync(w.startCtx)
		if w.startCtx.Err() != nil {
			w.changed() // interrupted operations may have had an effect
			return false
		}
	}
	if w.state == terminating {
		w.terminate(ctx)
	}
	if w.state == gone {
		done = w.release(ctx)
		if !closed(w.ended) && w.settled() {
			close(w.ended)
		}
	}
	w.again(w.retries.next(now))
	return done
}

// settled reports whether the API has the final status of a pod that is gone and, if it was
// evicted, whether what it had on the disk is removed.
func (w *worker) settled() bool {
	return w.m.writer.flushed(w.uid) && (!w.evicted() || w.observed.empty() && w.termination.released)
}

func (w *worker) enter(s state) {
	if w.state != s {
		w.log.Debug("pod", "from", w.state, "to", s)
		w.state = s
		w.mu.Lock()
		w.reached = s
		w.mu.Unlock()
	}
}

// mustEnd reports whether the pod is to be terminated. If its deadline has passed, it
// sets the verdict.
func (w *worker) mustEnd(now time.Time) bool {
	switch {
	case w.isRemoved, w.pod.DeletionTimestamp != nil, finalPhase(w.pod.Status.Phase), w.verdict != nil:
		return true
	}
	deadline := w.pod.Spec.ActiveDeadlineSeconds
	if deadline == nil {
		return false
	}
	if w.began.IsZero() {
		start := w.m.writer.latest(w.pod).Status.StartTime // a static pod has its status only here
		if start == nil {
			return false
		}
		w.began = wallclock.Anchor(start.Time, now)
	}
	end := w.began.Add(time.Duration(*deadline) * time.Second)
	if now.Before(end) {
		w.again(end)
		return false
	}
	w.verdict = &verdict{phase: corev1.PodFailed, reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline"}
	w.event(corev1.EventTypeNormal, "DeadlineExceeded", w.verdict.message)
	return true
}

// publish reports the pod's status to the API. ended means that no container is
// running or will run again.
func (w *worker) publish(ended bool) {
	if w.isRemoved {
		return
	}
	v := w.view(ended)
	status := podStatus(&v)
	if conditions.IsTrue(status.Conditions, corev1.PodReady) {
		w.everReady = true
	}
	if status.Phase == corev1.PodRunning && w.fresh {
		w.fresh = false
		w.m.cfg.Metrics.podStarted(w.pod, v.now.Sub(w.firstSeen), v.now.Sub(w.pod.CreationTimestamp.Time)-w.ownTime())
	}
	w.m.writer.set(w.pod, status)
}

// ownTime returns how long the pod took for itself before its app containers ran: to pull
// its images and to run its init containers.
func (w *worker) ownTime() time.Duration {
	took := w.m.puller.Waited(w.uid)
	for _, c := range w.observed.containers {
		if c.exited() && !c.started.IsZero() && isInit(w.pod, c.name) && !isSidecar(w.pod, c.name) {
			took += c.finished.Sub(c.started)
		}
	}
	return took
}

func (w *worker) view(ended bool) view {
	pod := w.m.writer.latest(w.pod)
	reopen(pod)
	return view{
		pod: pod, observed: w.observed, waiting: w.containers.waiting,
		initialized: w.initialized(),
		ready:       w.probes.Ready, started: w.probes.Started,
		resources: w.resizer.resourcesOf, resizing: w.resizer.conditions(), devices: w.deviceHealth,
		hostIPs: w.m.cfg.HostIPs(), runtime: w.m.cfg.RuntimeName,
		ended: ended, verdict: w.verdict, now: time.Now(),
	}
}

// initialized reports whether all init containers are done, according to the plan
// or, for a pod that is being terminated, to the API and the runtime.
func (w *worker) initialized() bool {
	if len(w.pod.Spec.InitContainers) == 0 || w.containers.plan.initialized {
		return true
	}
	if w.state == starting || w.state == running {
		return false
	}
	for i := range w.pod.Spec.Containers {
		if w.observed.latest(w.pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return conditions.IsTrue(w.pod.Status.Conditions, corev1.PodInitialized)
}
