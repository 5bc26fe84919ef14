package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// API is what the pods package asks of the apiserver about pods.
type API interface {
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// PatchStatus sends a strategic merge patch to the status subresource.
	PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	// DeletePod removes the pod for good, if it still has this uid.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
}

// How long a failed write waits for its next attempt.
const (
	minWriteDelay = 200 * time.Millisecond
	maxWriteDelay = 10 * time.Second
)

// maxRepeats is how often in a row a status is said again because the API's is
// another.
const maxRepeats = 3

// writer reports pod statuses. For each pod the writes are one after another
// and only the latest status is written; a failed write is tried again until it
// succeeds or the pod is gone.
type writer struct {
	api  API
	log  *slog.Logger
	wake func(types.UID) // called when a pod's latest status has arrived

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before it
	entries map[types.UID]*entry
	busy    sync.WaitGroup
	slots   chan struct{} // bounds concurrent requests
}

// entry is one pod's.
type entry struct {
	base    *corev1.Pod       // the newest known of the API
	want    *corev1.PodStatus // what the kubelet last said; nil: nothing yet
	version int               // counts what the kubelet said
	arrived int               // the version the API has
	sending bool              // a goroutine is at work
	kick    chan struct{}     // cuts its waiting short
}

func newWriter(api API, log *slog.Logger, concurrency int, wake func(types.UID)) *writer {
	return &writer{api: api, log: log, wake: wake, entries: map[types.UID]*entry{}, slots: make(chan struct{}, concurrency)}
}

// run lets writes happen until ctx ends, and waits for those under way.
func (w *writer) run(ctx context.Context) {
	w.mu.Lock()
	w.ctx = ctx
	for uid, e := range w.entries {
		w.startLocked(uid, e)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.busy.Wait()
}

// set says a pod's status. Saying the same twice writes once.
func (w *writer) set(pod *corev1.Pod, status corev1.PodStatus) {
	normalize(&status)
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entryLocked(pod)
	if e.want != nil && apiequality.Semantic.DeepEqual(*e.want, status) {
		return
	}
	e.want = &status
	e.version++
	w.startLocked(pod.UID, e)
}

// observe takes a pod as the informer shows it. When somebody else has changed
// what is the kubelet's to say, it is said again.
func (w *writer) observe(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[pod.UID]
	if e == nil || !newer(pod, e.base) {
		return
	}
	e.base = pod
	if e.want != nil && e.arrived == e.version && !e.saidLocked() {
		e.version++
		w.startLocked(pod.UID, e)
	}
}

// latest is the pod with the status the kubelet last said.
func (w *writer) latest(pod *corev1.Pod) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[pod.UID]
	if e == nil {
		return pod
	}
	out := pod.DeepCopy()
	if newer(e.base, pod) {
		out.Status = *e.base.Status.DeepCopy()
	}
	if e.want != nil {
		out.Status = merged(out, e.want)
	}
	return out
}

// flushed says that the API has the latest status.
func (w *writer) flushed(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[uid]
	return e == nil || e.arrived == e.version
}

// forget drops a pod that is gone.
func (w *writer) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[uid]; e != nil {
		delete(w.entries, uid)
		poke(e.kick)
	}
}

func (w *writer) entryLocked(pod *corev1.Pod) *entry {
	e := w.entries[pod.UID]
	if e == nil {
		e = &entry{base: pod, kick: make(chan struct{}, 1)}
		w.entries[pod.UID] = e
	}
	if newer(pod, e.base) {
		e.base = pod
	}
	return e
}

func (w *writer) startLocked(uid types.UID, e *entry) {
	if w.ctx == nil || w.ctx.Err() != nil || e.arrived == e.version {
		return
	}
	if e.sending {
		poke(e.kick)
		return
	}
	e.sending = true
	w.busy.Add(1)
	go func() {
		defer w.busy.Done()
		w.send(w.ctx, uid, e)
	}()
}

// send writes until the latest version has arrived.
func (w *writer) send(ctx context.Context, uid types.UID, e *entry) {
	delay, repeats := minWriteDelay, 0
	for {
		w.mu.Lock()
		if w.entries[uid] != e || e.arrived == e.version {
			e.sending = false
			w.mu.Unlock()
			return
		}
		base, want, version := e.base, e.want, e.version
		w.mu.Unlock()

		got, err := w.attempt(ctx, base, want)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			w.log.Warn("pod status not written", "pod", base.Namespace+"/"+base.Name, "error", err, "retry", delay)
			if !sleep(ctx, delay, e.kick) {
				return
			}
			delay = min(2*delay, maxWriteDelay)
			continue
		}
		delay = minWriteDelay
		last := repeats == maxRepeats
		switch again := w.take(e, got, version, last); {
		case again && !last:
			repeats++
			continue
		case again:
			w.log.Warn("the API keeps another pod status than was written", "pod", base.Namespace+"/"+base.Name)
		}
		repeats = 0
		if w.flushed(uid) {
			w.wake(uid)
		}
	}
}

// take notes what a write of a version has led to. again: the API has something
// else all the same, and nothing counts as said unless this was the last try. A
// write changes only what differs from the newest that was known, and the API
// may have moved on from that: by a write of ours whose answer was lost, or by
// somebody else's.
func (w *writer) take(e *entry, got *corev1.Pod, version int, last bool) (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if got == nil { // the pod is no more: nothing is owed
		e.arrived = e.version
		return false
	}
	if newer(got, e.base) {
		e.base = got
	}
	again = e.version == version && !e.saidLocked()
	if !again || last {
		e.arrived = version
	}
	return again
}

// saidLocked says that the API has what the kubelet last said, as far as is known.
func (e *entry) saidLocked() bool {
	return apiequality.Semantic.DeepEqual(merged(e.base, e.want), e.base.Status)
}

// attempt writes the status once. It answers nil for a pod that is gone.
func (w *writer) attempt(ctx context.Context, base *corev1.Pod, want *corev1.PodStatus) (*corev1.Pod, error) {
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for try := 0; ; try++ {
		patch, err := statusPatch(base, want)
		if err != nil || patch == nil {
			return base, err
		}
		got, err := w.api.PatchStatus(ctx, base.Namespace, base.Name, patch)
		switch {
		case err == nil:
			return got, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) || try > 0:
			return nil, err
		}
		// Somebody was faster, or another pod has the name now.
		fresh, err := w.api.GetPod(ctx, base.Namespace, base.Name)
		if apierrors.IsNotFound(err) || err == nil && fresh.UID != base.UID {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		base = fresh
	}
}

// statusPatch is the difference between what the API has and what is wanted,
// with the uid as a precondition; nil if there is none.
func statusPatch(base *corev1.Pod, want *corev1.PodStatus) ([]byte, error) {
	status := merged(base, want)
	if apiequality.Semantic.DeepEqual(status, base.Status) {
		return nil, nil
	}
	from, err := json.Marshal(&corev1.Pod{Status: base.Status})
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	to, err := json.Marshal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: base.UID}, Status: status})
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	return strategicpatch.CreateTwoWayMergePatch(from, to, corev1.Pod{})
}

// merged is what the API should have: the kubelet's word, but other people's
// conditions and fields as they are, and never a finished pod that runs again.
func merged(base *corev1.Pod, want *corev1.PodStatus) corev1.PodStatus {
	out := *want.DeepCopy()
	out.NominatedNodeName = base.Status.NominatedNodeName
	out.Resize = base.Status.Resize
	out.ResourceClaimStatuses = base.Status.ResourceClaimStatuses
	out.EphemeralContainerStatuses = base.Status.EphemeralContainerStatuses
	out.Conditions = nil
	for _, c := range base.Status.Conditions {
		if mine := condition(want, c.Type); mine != nil && isOurs(mine) {
			c = keepTransition(*mine, c)
		} else if isOurs(&c) && c.Type != corev1.PodScheduled {
			continue
		}
		out.Conditions = append(out.Conditions, c)
	}
	for _, c := range want.Conditions {
		if isOurs(&c) && condition(&out, c.Type) == nil {
			out.Conditions = append(out.Conditions, c)
		}
	}
	if out.StartTime == nil || base.Status.StartTime != nil {
		out.StartTime = base.Status.StartTime
	}
	if base.Status.QOSClass != "" {
		out.QOSClass = base.Status.QOSClass
	}
	if finalPhase(base.Status.Phase) && out.Phase != base.Status.Phase {
		out.Phase, out.Reason, out.Message = base.Status.Phase, base.Status.Reason, base.Status.Message
	}
	return out
}

// keepTransition keeps the API's transition time of a condition that has not changed.
func keepTransition(c, has corev1.PodCondition) corev1.PodCondition {
	if c.Status == has.Status && !has.LastTransitionTime.IsZero() {
		c.LastTransitionTime = has.LastTransitionTime
	}
	return c
}

// isOurs reports whether the kubelet writes the condition. DisruptionTarget is
// the writer's that its reason names.
func isOurs(c *corev1.PodCondition) bool {
	if c.Type == corev1.DisruptionTarget {
		return c.Reason == corev1.PodReasonTerminationByKubelet
	}
	return slices.Contains(ours, c.Type)
}

// normalize cuts times to what the wire carries, so that a status equals itself
// after a round trip.
func normalize(s *corev1.PodStatus) {
	cut := func(t *metav1.Time) {
		if t != nil && !t.IsZero() {
			*t = t.Rfc3339Copy()
		}
	}
	cut(s.StartTime)
	for i := range s.Conditions {
		cut(&s.Conditions[i].LastTransitionTime)
		cut(&s.Conditions[i].LastProbeTime)
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			for _, state := range []*corev1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
				if state.Running != nil {
					cut(&state.Running.StartedAt)
				}
				if state.Terminated != nil {
					cut(&state.Terminated.StartedAt)
					cut(&state.Terminated.FinishedAt)
				}
			}
		}
	}
}

// newer compares revisions; they are integers (KEP-5504).
func newer(a, b *corev1.Pod) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	if errX != nil || errY != nil {
		return errY != nil
	}
	return x > y
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits, less if kicked; it is false when ctx ended.
func sleep(ctx context.Context, d time.Duration, kick <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-kick:
	case <-ctx.Done():
		return false
	}
	return true
}
