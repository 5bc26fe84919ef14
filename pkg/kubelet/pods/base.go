package pods

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/probes"
)

// base is shared by the parts of a worker: the pod as of this step, and methods to
// wait, to run jobs and to record events. Only the worker's goroutine may use it,
// except for the inbox and post.
type base struct {
	inbox
	jobs

	m         *Manager
	uid       types.UID
	log       *slog.Logger
	probes    *probes.Set
	pod       *corev1.Pod // desired, as of this step
	isRemoved bool
	observed  observed
	read      bool     // observed has been read, or is known to be empty
	verdict   *verdict // nil: the pod has not been ended from outside
	retries   retries
	next      time.Time // when to step again without being woken; zero: never

	upstream    context.Context // ends with the kubelet
	startCtx    context.Context // ends when the pod is to be terminated
	cancelStart context.CancelFunc
}

// inbox holds what other goroutines send to a worker.
type inbox struct {
	waker chan struct{}

	mu          sync.Mutex
	desired     *corev1.Pod // the newest version from the API
	removed     bool        // the API no longer has the pod
	dirty       bool        // the runtime may have changed
	stale       bool        // objects that its volumes show have changed
	reached     state       // of the worker
	completions []func()    // results of jobs, to be applied by the worker
}

// jobs are the goroutines of a worker's jobs.
type jobs struct {
	running map[string]context.CancelFunc // by job key
	working sync.WaitGroup
}

func newBase(m *Manager, ctx context.Context, pod *corev1.Pod) *base {
	w := &base{
		inbox: inbox{waker: make(chan struct{}, 1), desired: pod}, jobs: jobs{running: map[string]context.CancelFunc{}},
		m: m, uid: pod.UID, log: m.cfg.Log.With("pod", pod.Namespace+"/"+pod.Name), retries: retries{}, upstream: ctx,
	}
	w.startCtx, w.cancelStart = context.WithCancel(ctx)
	w.probes = probes.New(m.cfg.Probes, w.wake)
	return w
}

// wake makes the worker take a step. Any goroutine may call it.
func (w *base) wake() { poke(w.waker) }

// changed makes the worker read the pod from the runtime again. Any goroutine may
// call it.
func (w *base) changed() {
	w.mu.Lock()
	w.dirty = true
	w.mu.Unlock()
	w.wake()
}

// outdate makes the worker refresh the pod's volumes. Any goroutine may call it.
func (w *base) outdate() {
	w.mu.Lock()
	w.stale = true
	w.mu.Unlock()
	w.wake()
}

// takeStale reports whether outdate has been called since the last takeStale.
func (w *base) takeStale() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.stale
	w.stale = false
	return was
}

// want sets the pod that the API has now. If the pod is to be terminated, it
// cancels the jobs that start it. Any goroutine may call it.
func (w *base) want(pod *corev1.Pod, removed bool) {
	w.mu.Lock()
	w.desired, w.removed = pod, removed
	w.mu.Unlock()
	if removed || pod.DeletionTimestamp != nil {
		w.cancelStart()
	}
	w.wake()
}

// inAPI reports whether the API has the pod. Any goroutine may call it.
func (w *base) inAPI() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.removed
}

// collect takes over what has arrived since the last step. It runs the completions
// of jobs first, so that this step sees their results.
func (w *base) collect() {
	w.mu.Lock()
	w.pod, w.isRemoved = w.desired, w.removed
	completions := w.completions
	w.completions = nil
	w.mu.Unlock()
	for _, complete := range completions {
		complete()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dirty {
		w.read, w.dirty = false, false
	}
}

// pause blocks until the worker is woken or w.next is reached. It returns false if
// ctx has ended.
func (w *base) pause(ctx context.Context) bool {
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

// again requests a step at t, unless an earlier one is due. A zero t is ignored.
func (w *base) again(t time.Time) {
	if !t.IsZero() && (w.next.IsZero() || t.Before(w.next)) {
		w.next = t
	}
}

// observe reads the pod from the runtime if it may have changed. It returns false
// if that failed; the worker then retries later.
func (w *base) observe(ctx context.Context, now time.Time) bool {
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
			w.log.Warn("read pod from the runtime failed", "error", err)
		}
		w.again(w.retries.fail("runtime", now, 200*time.Millisecond, 2*time.Second))
		return false
	}
	w.retries.ok("runtime")
	w.observed, w.read = o, true
	if o.unsettled() { // the runtime sends no event for this
		w.again(now.Add(100 * time.Millisecond))
	}
	return true
}

// job runs do in a new goroutine, unless the job with this key is running. ctx
// ends when the job is canceled. The worker runs the function that do returns, if
// not nil, on its own goroutine.
func (w *base) job(ctx context.Context, key string, do func(context.Context) func()) {
	if w.busy(key) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w.running[key] = cancel
	w.working.Go(func() {
		then := do(ctx)
		w.post(func() {
			cancel()
			delete(w.running, key)
			if then != nil {
				then()
			}
		})
	})
}

// post makes the worker run f before its next step. Any goroutine may call it.
func (w *base) post(f func()) {
	w.mu.Lock()
	w.completions = append(w.completions, f)
	w.mu.Unlock()
	w.wake()
}

// busy reports whether the job with this key is running.
func (j *jobs) busy(key string) bool { return j.running[key] != nil }

func (w *base) event(eventType, reason, message string) {
	w.m.cfg.Events.EventOn(w.pod, "", eventType, reason, message)
}

func (w *base) containerEvent(spec *corev1.Container, eventType, reason, message string) {
	w.m.cfg.Events.EventOn(w.pod, images.FieldPath(w.pod, spec.Name), eventType, reason, message)
}

// judge returns the result of the probes of a container.
func (w *base) judge(id string) probeVerdict {
	switch w.probes.Failed(id) {
	case probes.Liveness:
		return probeLivenessFailed
	case probes.Startup:
		return probeStartupFailed
	}
	if !w.probes.Started(id) {
		return probeStarting
	}
	return probeFine
}

// targets returns the running containers for the probes.
func (w *base) targets() []probes.Target {
	pod := w.withAddresses()
	var out []probes.Target
	for spec := range podspec.Main(pod) {
		c := w.observed.latest(spec.Name)
		if c == nil || !c.running() {
			continue
		}
		t := probes.Target{Pod: pod, Container: spec, ID: c.id, Started: c.started}
		for _, list := range [][]corev1.ContainerStatus{w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses} {
			for j := range list {
				if s := &list[j]; s.ContainerID == w.m.cfg.RuntimeName+"://"+c.id {
					t.WasReady = s.Ready
					t.WasStarted = s.Started != nil && *s.Started
				}
			}
		}
		out = append(out, t)
	}
	return out
}

// withAddresses returns a copy of the pod with its addresses in its status, which
// the API may not have yet.
func (w *base) withAddresses() *corev1.Pod {
	pod := *w.pod
	v := view{pod: w.pod, observed: w.observed, hostIPs: w.m.cfg.HostIPs()}
	v.addresses(&pod.Status)
	return &pod
}
