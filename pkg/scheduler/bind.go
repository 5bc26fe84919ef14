package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/queue"
)

// binding is a pod on its way to a node. From Assume on it is counted there;
// it stays so until the watch shows the pod bound, or until it is sure that
// the pod was not bound.
type binding struct {
	attempt *queue.Attempt
	began   time.Time
	node    string
	undo    func() // under the scheduler's lock
}

const (
	bindTimeout  = 30 * time.Second
	firstResolve = 200 * time.Millisecond
	lastResolve  = 5 * time.Second
)

func (s *scheduler) bind(ctx context.Context, b *binding) {
	pod := b.attempt.Pod
	err := s.post(ctx, b)
	if err != nil && !definite(err) {
		err = s.resolve(ctx, b, err)
	}
	switch {
	case ctx.Err() != nil:
		return // the next leader reads what became of it
	case err == nil:
		s.bound(b)
	default:
		s.mu.Lock()
		b.undo()
		s.mu.Unlock()
		if apierrors.IsNotFound(err) {
			s.queue.Remove(pod.UID)
			return
		}
		s.queue.Wake(framework.PodGone) // what was kept for it is free
		s.failed(ctx, b.attempt, b.began, fmt.Errorf("binding rejected: %w", err))
	}
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

// definite says whether the server has judged the request. If not, the pod may
// be bound or not.
func definite(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && status.ErrStatus.Code < 500
}

var (
	errLostRequest = errors.New("the request was lost")
	errElsewhere   = errors.New("the pod is on another node")
)

// resolve asks what became of a binding whose answer was lost, until there is
// an answer. Until then the node's room stays taken.
func (s *scheduler) resolve(ctx context.Context, b *binding, cause error) error {
	pod := b.attempt.Pod
	for wait := firstResolve; ; wait = min(2*wait, lastResolve) {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
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
	// The attempt began before the kubelet saw the pod: this event comes before the kubelet's.
	s.events.Action(pod, b.began, corev1.EventTypeNormal, "Scheduled", "Binding",
		fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, b.node))
}
