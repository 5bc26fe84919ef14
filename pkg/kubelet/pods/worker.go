package pods

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/probes"
	"podium/pkg/kubelet/volumes"
)

type state string

const (
	pending     state = "pending"
	starting    state = "starting"
	running     state = "running"
	terminating state = "terminating"
	gone        state = "gone"
)

// A worker owns one pod. It moves to the right; only a sandbox that dies takes
// a running pod one step back.
//
//	pending ──▶ starting ◀──▶ running ──▶ terminating ──▶ gone
//	   │            │                          ▲
//	   └────────────┴──────────────────────────┘
//
//	pending      the node has not said yet whether it takes the pod (admit.go)
//	starting     sandbox, volumes, init containers (start.go)
//	running      containers are started, started again, probed (start.go, container.go)
//	terminating  out of rotation, hooks, SIGTERM, grace period (stop.go)
//	gone         nothing runs; what is left is cleaned up, a deleted pod deleted for good (stop.go)
//
// Each step looks at three things: what the API wants, what the runtime has,
// what probes say. Whatever takes long (pulls, hooks, stops) is a job: a
// goroutine whose end wakes the worker.
type worker struct {
	m      *Manager
	uid    types.UID
	log    *slog.Logger
	probes *probes.Set
	waker  chan struct{}

	// How others speak to the worker.
	mu      sync.Mutex
	desired *corev1.Pod // the newest the API had
	removed bool        // the API has it no more
	dirty   bool        // the runtime may have changed
	mail    []func()    // ends of jobs, to be run by the worker

	// The worker's own.
	state       state
	pod         *corev1.Pod // desired, as of this step
	isRemoved   bool
	observed    observed
	read        bool // observed has been read, or is known to be empty
	verdict     *verdict
	mounts      map[string]volumes.Mount // nil: not set up
	waiting     map[string]corev1.ContainerStateWaiting
	plan        plan
	retries     retries
	jobs        map[string]context.CancelFunc // by what they are about
	working     sync.WaitGroup
	next        time.Time // when to step again without being woken; zero: never
	everReady   bool
	told        string      // the sandbox whose death is in the events
	refreshed   time.Time   // when volumes' contents were last brought up to date
	shown       *corev1.Pod // as it was then
	measured    time.Time   // when its storage was last measured
	firstSeen   time.Time
	ranAt       time.Time       // when it was first Running
	stops       map[string]stop // by container id
	parent      string          // its cgroup, as the runtime wants it; "": not asked yet
	end         ending
	upstream    context.Context // ends when the kubelet does
	startCtx    context.Context // ends when the pod is to end
	cancelStart context.CancelFunc
}

func newWorker(m *Manager, ctx context.Context, pod *corev1.Pod) *worker {
	w := &worker{
		m: m, uid: pod.UID, desired: pod, state: pending, waker: make(chan struct{}, 1),
		log:     m.cfg.Log.With("pod", pod.Namespace+"/"+pod.Name),
		waiting: map[string]corev1.ContainerStateWaiting{}, retries: retries{}, jobs: map[string]context.CancelFunc{}, stops: map[string]stop{},
		upstream: ctx, firstSeen: time.Now(),
		everReady: conditionTrue(&pod.Status, corev1.PodReady),
	}
	w.startCtx, w.cancelStart = context.WithCancel(ctx)
	w.probes = probes.New(m.cfg.Probes, w.wake)
	return w
}

func conditionTrue(s *corev1.PodStatus, t corev1.PodConditionType) bool {
	c := condition(s, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

// wake makes the worker take a step.
func (w *worker) wake() { poke(w.waker) }

// changed says that the runtime may have changed under the worker.
func (w *worker) changed() {
	w.mu.Lock()
	w.dirty = true
	w.mu.Unlock()
	w.wake()
}

// want gives the worker what the API wants now. What it is doing to start the
// pod ends at once when the pod is to end.
func (w *worker) want(pod *corev1.Pod, removed bool) {
	w.mu.Lock()
	w.desired, w.removed = pod, removed
	w.mu.Unlock()
	if removed || pod.DeletionTimestamp != nil {
		w.cancelStart()
	}
	w.wake()
}

// run steps until the pod is gone from the API and from the node, or ctx ends.
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

// close leaves no goroutine behind. Containers go on.
func (w *worker) close() {
	w.cancelStart()
	for _, cancel := range w.jobs {
		cancel()
	}
	w.probes.Keep(w.upstream, nil, true)
	w.probes.Wait()
	w.working.Wait()
}

// collect takes what came in since the last step. The ends of jobs come first:
// what they changed is seen in this very step.
func (w *worker) collect() {
	w.mu.Lock()
	w.pod, w.isRemoved = w.desired, w.removed
	mail := w.mail
	w.mail = nil
	w.mu.Unlock()
	for _, deliver := range mail {
		deliver()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dirty {
		w.read, w.dirty = false, false
	}
}

func (w *worker) pause(ctx context.Context) bool {
	var timer <-chan time.Time
	if !w.next.IsZero() {
		t := time.NewTimer(max(time.Until(w.next), 0))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-w.waker:
	case <-timer:
	case <-ctx.Done():
		return false
	}
	return true
}

// again asks for a step at t, if none is due earlier.
func (w *worker) again(t time.Time) {
	if !t.IsZero() && (w.next.IsZero() || t.Before(w.next)) {
		w.next = t
	}
}

// step does what can be done now; it is true when there is nothing left of the pod.
func (w *worker) step(ctx context.Context) (done bool) {
	now := time.Now()
	if !w.observe(ctx, now) {
		return false
	}
	if w.state == pending {
		w.admit(ctx)
	}
	if (w.state == starting || w.state == running) && w.mustEnd(now) {
		w.enter(terminating)
	}
	if w.state == starting || w.state == running {
		w.sync(w.startCtx)
		if w.startCtx.Err() != nil {
			w.changed() // what was cut short may have left something behind
			return false
		}
	}
	if w.state == terminating {
		w.terminate(ctx)
	}
	if w.state == gone {
		done = w.release(ctx)
	}
	w.again(w.retries.next(now))
	return done
}

func (w *worker) enter(s state) {
	if w.state != s {
		w.log.Debug("pod", "from", w.state, "to", s)
		w.state = s
	}
}

// observe reads the pod from the runtime when something may have changed. While
// the runtime is away, the worker waits.
func (w *worker) observe(ctx context.Context, now time.Time) bool {
	if w.read && !w.observed.unsettled() {
		return true
	}
	if !w.retries.due("runtime", now) {
		w.again(w.retries.next(now))
		return false
	}
	o, err := reader{w.m.cfg.Runtime}.read(ctx, w.uid, w.observed)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("container runtime does not say how the pod is", "error", err)
		}
		w.again(w.retries.fail("runtime", now, 200*time.Millisecond, 2*time.Second))
		return false
	}
	w.retries.ok("runtime")
	w.observed, w.read = o, true
	if o.unsettled() { // no event will tell
		w.again(now.Add(100 * time.Millisecond))
	}
	return true
}

// mustEnd says that the pod is to end, and keeps the reason.
func (w *worker) mustEnd(now time.Time) bool {
	switch {
	case w.isRemoved, w.pod.DeletionTimestamp != nil, finalPhase(w.pod.Status.Phase), w.verdict != nil:
		return true
	}
	deadline := w.pod.Spec.ActiveDeadlineSeconds
	if deadline == nil || w.pod.Status.StartTime == nil {
		return false
	}
	end := w.pod.Status.StartTime.Add(time.Duration(*deadline) * time.Second)
	if now.Before(end) {
		w.again(end)
		return false
	}
	w.verdict = &verdict{phase: corev1.PodFailed, reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline"}
	w.event(corev1.EventTypeNormal, "DeadlineExceeded", w.verdict.message)
	return true
}

// job does something long beside the worker, once for each key. What it
// returns is run by the worker when it is done.
func (w *worker) job(ctx context.Context, key string, do func(context.Context) func()) {
	if _, busy := w.jobs[key]; busy {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w.jobs[key] = cancel
	w.working.Go(func() {
		then := do(ctx)
		w.post(func() {
			cancel()
			delete(w.jobs, key)
			if then != nil {
				then()
			}
		})
	})
}

func (w *worker) post(f func()) {
	w.mu.Lock()
	w.mail = append(w.mail, f)
	w.mu.Unlock()
	w.wake()
}

// publish says how the pod is.
func (w *worker) publish(ended bool) {
	if w.isRemoved {
		return
	}
	v := w.view(ended)
	status := podStatus(&v)
	if conditionTrue(&status, corev1.PodReady) {
		w.everReady = true
	}
	if status.Phase == corev1.PodRunning && w.ranAt.IsZero() {
		w.ranAt = v.now
		w.m.cfg.Metrics.podStarted(w.pod, w.firstSeen, v.now)
	}
	w.m.writer.set(w.pod, status)
}

func (w *worker) view(ended bool) view {
	return view{
		pod: w.m.writer.latest(w.pod), observed: w.observed, waiting: w.waiting,
		initialized: w.initialized(),
		ready:       w.probes.Ready, started: w.probes.Started,
		hostIPs: w.m.cfg.HostIPs(), runtime: w.m.cfg.RuntimeName,
		ended: ended, verdict: w.verdict, now: time.Now(),
	}
}

// initialized says that no init container has anything left to do, as far as
// the plan, or for a pod that ends the API and the runtime, can tell.
func (w *worker) initialized() bool {
	if len(w.pod.Spec.InitContainers) == 0 || w.plan.initialized {
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
	return conditionTrue(&w.pod.Status, corev1.PodInitialized)
}

func (w *worker) event(eventType, reason, message string) {
	w.m.cfg.Events.EventOn(w.pod, "", eventType, reason, message)
}

// retries says when what failed is tried again, each thing by its key.
type retries map[string]*retry

type retry struct {
	delay time.Duration
	until time.Time
}

func (r retries) due(key string, now time.Time) bool {
	t := r[key]
	return t == nil || !now.Before(t.until)
}

func (r retries) fail(key string, now time.Time, first, most time.Duration) time.Time {
	t := r[key]
	if t == nil {
		t = &retry{}
		r[key] = t
	}
	t.delay = min(max(2*t.delay, first), most)
	t.until = now.Add(t.delay)
	return t.until
}

func (r retries) ok(key string) { delete(r, key) }

// next is the earliest time after now at which something is due.
func (r retries) next(now time.Time) time.Time {
	var first time.Time
	for _, t := range r {
		if t.until.After(now) && (first.IsZero() || t.until.Before(first)) {
			first = t.until
		}
	}
	return first
}
