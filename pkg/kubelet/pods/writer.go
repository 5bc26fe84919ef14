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

	"podium/pkg/backoff"
	"podium/pkg/conditions"
	"podium/pkg/kubelet/podspec"
)

// API reads, updates and deletes pods in the API.
type API interface {
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// PatchStatus sends a strategic merge patch to the status subresource.
	PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	// DeletePod deletes the pod without a grace period, if it still has this uid.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
}

// The back-off of a failed write.
const (
	minWriteDelay = 200 * time.Millisecond
	maxWriteDelay = 10 * time.Second
)

// restoreDelay is how long a change by another client to a reported status
// stays: upstream's kubelet looks for such changes every ten seconds.
const restoreDelay = 10 * time.Second

// maxRepeats limits how often in a row a status is written again because the API
// returns a different one.
const maxRepeats = 3

// writer writes pod statuses to the API. It writes one status of a pod at a time, and
// always the latest. It retries a failed write until the write succeeds or the pod
// is gone. It is safe for concurrent use.
type writer struct {
	api  API
	log  *slog.Logger
	wake func(types.UID) // called when the API has a pod's latest status

	mu      sync.Mutex
	ctx     context.Context // of run; nil before and after it
	entries map[types.UID]*entry
	busy    sync.WaitGroup
	slots   chan struct{} // limits concurrent requests
}

// entry is the state of one pod.
type entry struct {
	base    *corev1.Pod       // the newest version from the API
	mirror  types.UID         // the mirror of a static pod, of which base is a version; "": none yet
	want    *corev1.PodStatus // the latest status from set; nil: none yet
	version int               // incremented by each change of the status
	arrived int               // the version that the API has
	sending bool              // a goroutine runs send
	restore bool              // the next write waits for restoreDelay
	kick    chan struct{}     // ends the back-off of send
}

func newWriter(api API, log *slog.Logger, concurrency int, wake func(types.UID)) *writer {
	return &writer{api: api, log: log, wake: wake, entries: map[types.UID]*entry{}, slots: make(chan struct{}, concurrency)}
}

// run starts writing and blocks until ctx ends and all writes have ended.
func (w *writer) run(ctx context.Context) {
	w.mu.Lock()
	w.ctx = ctx
	for uid, e := range w.entries {
		w.startLocked(uid, e)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.ctx = nil // a set that began before ctx ended starts nothing more
	w.mu.Unlock()
	w.busy.Wait()
}

// set sets a pod's status, to be written in the background. It does nothing if the
// status has not changed. It takes ownership of status.
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

// observe handles a pod from the informer. If another client has changed what the
// kubelet reports, the status is written again after restoreDelay, or with the
// next change of the status.
func (w *writer) observe(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observeLocked(pod)
}

// observeLocked is observe; w.mu is held.
func (w *writer) observeLocked(pod *corev1.Pod) {
	e := w.entries[pod.UID]
	if e == nil || !newer(pod, e.base) {
		return
	}
	e.base = pod
	if e.want != nil && e.arrived == e.version && !e.syncedLocked() {
		e.version++
		e.restore = true
		w.startLocked(pod.UID, e)
	}
}

// latest returns the pod with the status that was last set, or pod itself if none
// was. It does not modify pod.
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

// flushed reports whether the API has the latest status, or nothing to keep it in.
func (w *writer) flushed(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[uid]
	return e == nil || e.arrived == e.version || e.unmirrored()
}

// forget drops the state of a pod that no longer exists.
func (w *writer) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[uid]; e != nil {
		delete(w.entries, uid)
		poke(e.kick)
	}
}

// entryLocked returns the pod's entry and creates it on the first call. w.mu is held.
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

// startLocked makes sure that a goroutine writes the entry's latest version. It does
// nothing before run and after its end. w.mu is held.
func (w *writer) startLocked(uid types.UID, e *entry) {
	if w.ctx == nil || w.ctx.Err() != nil || e.arrived == e.version || e.unmirrored() {
		return
	}
	if e.sending {
		poke(e.kick)
		return
	}
	e.sending = true
	ctx := w.ctx
	w.busy.Go(func() { w.send(ctx, uid, e) })
}

// send writes until the API has the latest version or ctx ends.
func (w *writer) send(ctx context.Context, uid types.UID, e *entry) {
	retry, repeats := backoff.Backoff{Initial: minWriteDelay, Max: maxWriteDelay}, 0
	for {
		if w.restores(e) && backoff.SleepOrWake(ctx, restoreDelay, e.kick) != nil {
			return
		}
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
			wait := retry.Next()
			w.log.Warn("patch pod status failed", "pod", base.Namespace+"/"+base.Name, "error", err, "retry", wait)
			if backoff.SleepOrWake(ctx, wait, e.kick) != nil {
				return
			}
			continue
		}
		retry.Reset()
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

// restores reports, once, that the next write waits for restoreDelay.
func (w *writer) restores(e *entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	restore := e.restore
	e.restore = false
	return restore
}

// take handles the result of writing a version; got is nil if the pod no longer
// exists. It returns true if the API still has a different status; then the version
// counts as arrived only if last is set. A write changes only what differs from
// the newest known version, and the API may have a newer one: from a write of the
// kubelet whose response was lost, or from another client.
func (w *writer) take(e *entry, got *corev1.Pod, version int, last bool) (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if got == nil { // the pod does not exist any more
		e.arrived = e.version
		return false
	}
	if newer(got, e.base) {
		e.base = got
	}
	again = e.version == version && !e.syncedLocked()
	if !again || last {
		e.arrived = version
	}
	return again
}

// syncedLocked reports whether the API has the latest status, as far as is known.
func (e *entry) syncedLocked() bool {
	return apiequality.Semantic.DeepEqual(merged(e.base, e.want), e.base.Status)
}

// attempt writes the status once. It returns nil without an error if the pod no
// longer exists. On a conflict it reads the pod and tries once more.
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
		// Another client wrote first, or another pod now has the name.
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

// statusPatch returns the patch from base's status to want, with the uid as a
// precondition; nil if they are equal.
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

// merged returns the status that the API should have: the kubelet's status, but
// conditions and fields of other clients as in base. A pod in a final phase stays in
// that phase, unless it is static (see reopen).
func merged(base *corev1.Pod, want *corev1.PodStatus) corev1.PodStatus {
	out := *want.DeepCopy()
	out.NominatedNodeName = base.Status.NominatedNodeName
	out.Resize = base.Status.Resize
	out.ResourceClaimStatuses = base.Status.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = base.Status.ExtendedResourceClaimStatus
	out.Conditions = nil
	for _, c := range base.Status.Conditions {
		if mine := conditions.Find(want.Conditions, c.Type); mine != nil && isOwned(mine) {
			c = keepTransition(*mine, c)
		} else if isOwned(&c) && c.Type != corev1.PodScheduled {
			continue
		}
		out.Conditions = append(out.Conditions, c)
	}
	for _, c := range want.Conditions {
		if isOwned(&c) && conditions.Find(out.Conditions, c.Type) == nil {
			out.Conditions = append(out.Conditions, c)
		}
	}
	if out.StartTime == nil || base.Status.StartTime != nil {
		out.StartTime = base.Status.StartTime
	}
	if base.Status.QOSClass != "" {
		out.QOSClass = base.Status.QOSClass
	}
	if finalPhase(base.Status.Phase) && out.Phase != base.Status.Phase && !podspec.Static(base) {
		out.Phase, out.Reason, out.Message = base.Status.Phase, base.Status.Reason, base.Status.Message
	}
	return out
}

// keepTransition keeps the API's transition time if the condition's status is the same.
func keepTransition(c, has corev1.PodCondition) corev1.PodCondition {
	if c.Status == has.Status && !has.LastTransitionTime.IsZero() {
		c.LastTransitionTime = has.LastTransitionTime
	}
	return c
}

// isOwned reports whether the kubelet owns the condition. The owner of
// DisruptionTarget is the client that its reason names.
func isOwned(c *corev1.PodCondition) bool {
	if c.Type == corev1.DisruptionTarget {
		return c.Reason == corev1.PodReasonTerminationByKubelet
	}
	return slices.Contains(ownedConditions, c.Type)
}

// normalize truncates times to the precision of the API, so that a status equals
// itself after a round trip.
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
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
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

// newer reports whether a has a newer resourceVersion than b. resourceVersions are
// integers (KEP-5504).
func newer(a, b *corev1.Pod) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	if errX != nil || errY != nil {
		return errY != nil
	}
	return x > y
}

// poke sends to c without blocking; c has room for one token.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
