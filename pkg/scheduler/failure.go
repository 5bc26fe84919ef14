package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/queue"
)

const failedScheduling = "FailedScheduling"

// unschedulable ends an attempt for which there is no node.
func (s *scheduler) unschedulable(ctx context.Context, a *queue.Attempt, began time.Time, err error) {
	message, wakes := err.Error(), framework.NodeAdded
	var fit *framework.FitError
	if errors.As(err, &fit) {
		message, wakes = fit.Message(), fit.Wakes
	}
	s.metrics.attempt(resultUnschedulable, began)
	s.queue.Fail(a, wakes)
	s.cfg.Log.Debug("no place", "pod", a.Pod.Namespace+"/"+a.Pod.Name, "why", err)
	s.report(ctx, a.Pod, corev1.PodReasonUnschedulable, message)
}

// failed ends an attempt that broke for a reason that is not the cluster's.
func (s *scheduler) failed(ctx context.Context, a *queue.Attempt, began time.Time, err error) {
	s.metrics.attempt(resultError, began)
	s.queue.Fail(a, 0)
	s.cfg.Log.Warn("attempt failed", "pod", a.Pod.Namespace+"/"+a.Pod.Name, "error", err)
	s.report(ctx, a.Pod, corev1.PodReasonSchedulerError, err.Error())
}

// report tells the user, by an event and by the pod's condition.
func (s *scheduler) report(ctx context.Context, pod *corev1.Pod, reason, message string) {
	s.events.Action(pod, time.Now(), corev1.EventTypeWarning, failedScheduling, "Scheduling", message)
	s.writes.do(func() { s.writeCondition(ctx, pod, reason, message) })
}

// conditionTries bounds how often a condition is written anew because the pod
// changed in between.
const conditionTries = 3

// writeCondition says PodScheduled=False in the pod's status. The write is
// bound to the version of the pod that was looked at: it must not reach a pod
// that has been bound since.
func (s *scheduler) writeCondition(ctx context.Context, pod *corev1.Pod, reason, message string) {
	for range conditionTries {
		if now, ok := s.pods.Get(pod.Namespace, pod.Name); ok && now.UID == pod.UID {
			pod = now
		}
		patch, err := conditionPatch(pod, reason, message)
		if err != nil || patch == nil {
			return
		}
		_, err = s.api.In(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, "status")
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.cfg.Log.Warn("the pod's condition was not written", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		}
		return
	}
}

// conditionPatch is nil when the pod says so already, or is bound.
func conditionPatch(pod *corev1.Pod, reason, message string) ([]byte, error) {
	if pod.Spec.NodeName != "" {
		return nil, nil
	}
	c := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: reason, Message: message, ObservedGeneration: pod.Generation, LastTransitionTime: metav1.Now(),
	}
	for _, have := range pod.Status.Conditions {
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message {
			return nil, nil
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"conditions": []corev1.PodCondition{c}},
	})
}
