package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/scheduler/extender"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/queue"
	"podium/pkg/scheduler/snapshot"
)

// binding is a pod that is being bound to a node. The snapshot counts the pod on the node
// until the watch delivers the bound pod, or until it is certain that the pod was not bound.
type binding struct {
	attempt *queue.Attempt
	pod     *snapshot.Pod
	began   time.Time
	node    string
	undo    framework.Undo // with the scheduler's lock held

	expected bool // the pod's status may name the node
}

const (
	bindTimeout  = 30 * time.Second
	firstResolve = 200 * time.Millisecond
	lastResolve  = 5 * time.Second
)

// startBinding starts the binding cycle in the background. It does not block. A binding that
// a Permit plugin delays does not count against Config.Binds.
func (s *scheduler) startBinding(ctx context.Context, b *binding) {
	if !s.of(b.attempt.Pod).algorithm.Waits(b.pod) {
		s.writes.do(func() { s.permitted(ctx, b) })
		return
	}
	s.bindAfter(ctx, b, func(ctx context.Context) error {
		return s.of(b.attempt.Pod).algorithm.Permit(ctx, b.pod, b.node)
	})
}

// bindAfter binds a pod when wait returns nil. Until then the pod does not count against
// Config.Binds. The context of wait ends when the pod is no longer pending.
func (s *scheduler) bindAfter(ctx context.Context, b *binding, wait func(context.Context) error) {
	s.writes.aside(func() {
		s.expect(ctx, b)
		waitCtx, stop := s.whilePending(ctx, b.pod.Pod)
		err := wait(waitCtx)
		stop()
		if err != nil {
			s.rollBack(ctx, b, err)
			return
		}
		s.writes.do(func() { s.bind(ctx, b) })
	})
}

// whilePending returns a context that ends when the pod is no longer pending, or when stop is called.
func (s *scheduler) whilePending(ctx context.Context, pod *corev1.Pod) (waitCtx context.Context, stop func()) {
	waitCtx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pending(pod) {
		cancel()
		return waitCtx, cancel
	}
	s.waits[pod.UID] = cancel
	return waitCtx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endWait(pod.UID)
	}
}

// endWait ends the context of whilePending, if there is one. Callers hold the lock.
func (s *scheduler) endWait(uid types.UID) {
	if cancel := s.waits[uid]; cancel != nil {
		delete(s.waits, uid)
		cancel()
	}
}

// permitted binds a pod for which no Permit plugin blocks.
func (s *scheduler) permitted(ctx context.Context, b *binding) {
	if err := s.of(b.attempt.Pod).algorithm.Permit(ctx, b.pod, b.node); err != nil {
		s.rollBack(ctx, b, err)
		return
	}
	s.bind(ctx, b)
}

func (s *scheduler) bind(ctx context.Context, b *binding) {
	err := s.of(b.attempt.Pod).algorithm.PreBind(ctx, b.pod, b.node)
	if later := (*framework.LaterError)(nil); errors.As(err, &later) {
		s.bindAfter(ctx, b, later.Await)
		return
	}
	if err != nil {
		s.rollBack(ctx, b, err)
		return
	}
	err = s.of(b.attempt.Pod).algorithm.Measure(framework.Bind, func() error { return s.write(ctx, b) })
	if err != nil && !definite(err) {
		err = s.resolve(ctx, b, err)
	}
	if err != nil {
		s.rollBack(ctx, b, fmt.Errorf("binding rejected: %w", err))
		return
	}
	s.bound(b)
	s.of(b.attempt.Pod).algorithm.PostBind(ctx, b.pod, b.node)
}

// rollBack ends an attempt whose pod was not bound. The error does not tell whether the pod still
// exists: a claim of the pod may be what was not found.
func (s *scheduler) rollBack(ctx context.Context, b *binding, err error) {
	if ctx.Err() != nil {
		return // the next leader reads the outcome from the API
	}
	s.mu.Lock()
	b.undo.Run()
	pending, nomination := s.pending(b.pod.Pod), s.nominationAfter(b)
	s.mu.Unlock()
	s.queue.Wake(framework.PodGone | framework.DeviceChanged) // its reserved resources are free
	if !pending {
		s.queue.Remove(b.pod.UID)
		return
	}
	s.failed(ctx, b.attempt, b.began, nomination, err)
}

func (s *scheduler) post(ctx context.Context, b *binding) error {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	pod := b.attempt.Pod
	return s.api.In(pod.Namespace).Post(ctx, pod.Name, "binding", &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: b.node},
	}, nil)
}

// definite reports whether the server, or an extender, has decided on the request. Otherwise the pod may or
// may not be bound.
func definite(err error) bool {
	var status *apierrors.StatusError
	return extender.Refused(err) || errors.As(err, &status) && status.ErrStatus.Code < 500
}

var (
	errLostRequest = errors.New("the request was lost")
	errElsewhere   = errors.New("the pod is on another node")
)

// resolve reads the pod until it knows the outcome of a binding whose response was lost. Until
// then the pod stays counted on the node.
func (s *scheduler) resolve(ctx context.Context, b *binding, cause error) error {
	pod := b.attempt.Pod
	retry := backoff.Backoff{Initial: firstResolve, Max: lastResolve}
	for {
		if err := retry.Wait(ctx); err != nil {
			return err
		}
		now, err := s.api.In(pod.Namespace).Get(ctx, pod.Name)
		switch {
		case err != nil && !definite(err):
			continue
		case err != nil:
			return err
		case now.UID != pod.UID:
			return apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
		case now.Spec.NodeName == b.node:
			return nil
		case now.Spec.NodeName != "":
			return errElsewhere
		}
		return fmt.Errorf("%w: %w", errLostRequest, cause)
	}
}

func (s *scheduler) bound(b *binding) {
	pod := b.attempt.Pod
	s.metrics.scheduled(b.attempt, b.began)
	// The start time of the attempt sorts it before the kubelet's events.
	s.of(pod).events.Action(pod, b.began, corev1.EventTypeNormal, "Scheduled", "Binding",
		fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, b.node))
}
