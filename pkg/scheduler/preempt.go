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

// nominated follows status.nominatedNodeName of a pending pod. A version of the pod without it
// may be older than a nomination that is not in the API yet.
func (s *scheduler) nominated(old, new *corev1.Pod) {
	name := new.Status.NominatedNodeName
	switch {
	case old != nil && old.Status.NominatedNodeName == name && !needsChanged(old, new):
	case name != "":
		s.snap.Nominate(snapshot.NewPod(new), name)
	case old != nil && old.Status.NominatedNodeName != "":
		s.dropNomination(new.UID)
	}
}

// dropNomination ends a nomination, if there is one. Other pods may then get the room.
func (s *scheduler) dropNomination(uid types.UID) {
	if s.snap.Unnominate(uid) {
		s.queue.Wake(framework.PodGone)
	}
}

// unnominate ends the nomination of a pod that is about to be bound. If the binding fails and the
// pod still waits for a node, the nomination holds again.
func (s *scheduler) unnominate(b *binding) {
	n, ok := s.snap.Nominated(b.pod.UID)
	if !ok {
		return
	}
	node := n.Name()
	s.dropNomination(b.pod.UID)
	b.undo.Push(func() {
		if s.pending(b.pod.Pod) {
			s.snap.Nominate(b.pod, node)
		}
	})
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

// clearNomination removes a nomination from a pod's status.
func (s *scheduler) clearNomination(ctx context.Context, pod *corev1.Pod, node string) {
	for range statusTries {
		if now, ok := s.pods.Get(pod.Namespace, pod.Name); ok {
			pod = now
		}
		if pod.Status.NominatedNodeName != node {
			return
		}
		patch, err := patchOf(pod, map[string]any{"nominatedNodeName": nil})
		if err != nil {
			return
		}
		if _, err = s.api.In(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, "status"); !apierrors.IsConflict(err) {
			return
		}
	}
}
