package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/conditions"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// preempt applies a nomination: from now on the node is reserved for the pod, and the victims
// count as terminating. Those that do not terminate yet are evicted in the background. Pods of
// lower priority lose their nominations for the node. Callers hold the lock.
func (s *scheduler) preempt(ctx context.Context, pod *snapshot.Pod, n framework.Nomination) {
	if n.Release != nil {
		s.writes.do(func() { n.Release(ctx) })
	}
	s.metrics.preemptions.Inc()
	if n.Node == "" {
		if n.Void {
			s.dropNomination(pod.UID)
		}
		return
	}
	s.snap.Nominate(pod, n.Node)
	node, _ := s.snap.Nominated(pod.UID)
	for _, other := range slices.Clone(node.Nominees()) {
		if other.Priority() < pod.Priority() {
			s.snap.Unnominate(other.UID)
			s.queue.Retry(other.UID)
			s.writes.do(func() { s.clearNomination(ctx, other.Pod, n.Node) })
		}
	}
	if len(n.Victims) > 0 {
		s.metrics.victims.Observe(float64(len(n.Victims)))
	}
	for _, victim := range n.Victims {
		if victim.DeletionTimestamp != nil {
			continue
		}
		undo := s.snap.Evict(victim.UID)
		s.writes.do(func() { s.evict(ctx, pod.Pod, victim.Pod, n.Node, undo) })
	}
}

const evictTries = 5

// evict deletes a victim, after its status says why. If that fails, the victim counts as before,
// and the pod is scheduled again.
func (s *scheduler) evict(ctx context.Context, pod, victim *corev1.Pod, node string, undo func()) {
	var err error
	retry := backoff.Backoff{Initial: firstResolve, Max: lastResolve}
	for range evictTries {
		if err = s.disrupt(ctx, pod, victim); err == nil || definite(err) && !apierrors.IsConflict(err) || retry.Wait(ctx) != nil {
			break
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		s.of(pod).events.Action(victim, time.Now(), corev1.EventTypeNormal, "Preempted", "Preempting",
			fmt.Sprintf("Preempted by pod %s on node %s", pod.UID, node))
		return
	}
	if ctx.Err() != nil {
		return // the next leader decides again
	}
	s.cfg.Log.Warn("preempt pod failed", "victim", victim.Namespace+"/"+victim.Name, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	undo()
	s.dropNomination(pod.UID)
	s.queue.Retry(pod.UID)
}

// disrupt sets the condition DisruptionTarget of pod's victim and deletes it, unless it has been
// deleted already.
func (s *scheduler) disrupt(ctx context.Context, pod, victim *corev1.Pod) error {
	api := s.api.In(victim.Namespace)
	now, err := api.Get(ctx, victim.Name)
	if err != nil {
		return err
	}
	if now.UID != victim.UID || now.DeletionTimestamp != nil {
		return nil
	}
	c := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: now.Generation,
		Reason: corev1.PodReasonPreemptionByScheduler, LastTransitionTime: metav1.Now(),
		Message: pod.Spec.SchedulerName + ": preempting to accommodate a higher priority pod",
	}
	if have := conditions.Find(now.Status.Conditions, c.Type); have == nil || have.Reason != c.Reason {
		patch, err := patchOf(now, map[string]any{"conditions": []corev1.PodCondition{c}})
		if err != nil {
			return err
		}
		if _, err = api.Patch(ctx, victim.Name, types.StrategicMergePatchType, patch, "status"); err != nil {
			return err
		}
	}
	return api.Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
}
