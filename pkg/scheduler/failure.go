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

	"podium/pkg/conditions"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/queue"
)

const failedScheduling = "FailedScheduling"

// unschedulable ends an attempt that found no node, for which the PostFilter plugins may have
// nominated one.
func (s *scheduler) unschedulable(ctx context.Context, a *queue.Attempt, began time.Time, nomination framework.Nomination, err error) {
	message, wakes := err.Error(), framework.NodeAdded
	var fit *framework.FitError
	if errors.As(err, &fit) {
		message, wakes = fit.Message(), fit.Wakes
	}
	s.metrics.attempt(a.Pod, resultUnschedulable, began)
	s.queue.Fail(a, wakes)
	s.cfg.Log.Debug("no node fits", "pod", a.Pod.Namespace+"/"+a.Pod.Name, "error", err)
	s.report(ctx, a.Pod, nomination, corev1.PodReasonUnschedulable, message)
}

// failed ends an attempt with an error that no cluster event resolves.
func (s *scheduler) failed(ctx context.Context, a *queue.Attempt, began time.Time, nomination framework.Nomination, err error) {
	s.metrics.attempt(a.Pod, resultError, began)
	s.queue.Fail(a, 0)
	s.cfg.Log.Warn("schedule pod failed", "pod", a.Pod.Namespace+"/"+a.Pod.Name, "error", err)
	s.report(ctx, a.Pod, nomination, corev1.PodReasonSchedulerError, err.Error())
}

// report records the failure in an event and in the pod's status. It does not block.
func (s *scheduler) report(ctx context.Context, pod *corev1.Pod, nomination framework.Nomination, reason, message string) {
	s.of(pod).events.Action(pod, time.Now(), corev1.EventTypeWarning, failedScheduling, "Scheduling", message)
	s.writes.do(func() { s.writeStatus(ctx, pod, nomination, reason, message) })
}

// statusTries is the number of attempts of a status patch that conflicts.
const statusTries = 3

// writeStatus sets the condition PodScheduled=False and nominatedNodeName. The patch contains
// the pod's resourceVersion, so that it does not apply to a pod that has been bound since.
func (s *scheduler) writeStatus(ctx context.Context, pod *corev1.Pod, nomination framework.Nomination, reason, message string) {
	for range statusTries {
		pod = s.latest(pod)
		patch, err := statusPatch(pod, nomination, reason, message)
		if err != nil || patch == nil {
			return
		}
		_, err = s.api.In(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, "status")
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.cfg.Log.Warn("patch pod status failed", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		}
		return
	}
}

// statusPatch returns nil if the status is already correct or the pod is bound.
func statusPatch(pod *corev1.Pod, nomination framework.Nomination, reason, message string) ([]byte, error) {
	if pod.Spec.NodeName != "" {
		return nil, nil
	}
	c := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: reason, Message: message, ObservedGeneration: pod.Generation, LastTransitionTime: metav1.Now(),
	}
	node := pod.Status.NominatedNodeName
	if nomination.Node != "" || nomination.Void {
		node = nomination.Node
	}
	if have := conditions.Find(pod.Status.Conditions, c.Type); have != nil && have.Status == c.Status {
		if have.Reason == c.Reason && have.Message == c.Message && node == pod.Status.NominatedNodeName {
			return nil, nil
		}
		c.LastTransitionTime = have.LastTransitionTime
	}
	return patchOf(pod, map[string]any{"conditions": []corev1.PodCondition{c}, "nominatedNodeName": orNull(node)})
}

// patchOf returns a patch of a pod's status. It contains the resourceVersion.
func patchOf(pod *corev1.Pod, status map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   status,
	})
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
