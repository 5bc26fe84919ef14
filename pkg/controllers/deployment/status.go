package deployment

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
)

// Reasons of the conditions.
const (
	reasonCreated     = "NewReplicaSetCreated"
	reasonCreateError = "ReplicaSetCreateError"
	reasonFound       = "FoundNewReplicaSet"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonAvailable   = "NewReplicaSetAvailable"
	reasonTimedOut    = "ProgressDeadlineExceeded"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"

	reasonMinimum   = "MinimumReplicasAvailable"
	reasonNoMinimum = "MinimumReplicasUnavailable"
)

// count returns the status with the numbers of replicas. The conditions are those of d, with
// Available updated.
func count(d *appsv1.Deployment, current *appsv1.ReplicaSet, all []*appsv1.ReplicaSet, now time.Time) appsv1.DeploymentStatus {
	s := appsv1.DeploymentStatus{
		ObservedGeneration:  d.Generation,
		CollisionCount:      d.Status.CollisionCount,
		Replicas:            statusReplicas(all),
		AvailableReplicas:   availableReplicas(all),
		TerminatingReplicas: new(int32),
		Conditions:          slices.Clone(d.Status.Conditions),
	}
	for _, rs := range all {
		s.ReadyReplicas += rs.Status.ReadyReplicas
		switch {
		case rs.Status.TerminatingReplicas == nil:
			s.TerminatingReplicas = nil
		case s.TerminatingReplicas != nil:
			*s.TerminatingReplicas += *rs.Status.TerminatingReplicas
		}
	}
	if current != nil {
		s.UpdatedReplicas = current.Status.Replicas
	}
	s.UnavailableReplicas = max(0, specReplicas(all)-s.AvailableReplicas)
	if s.AvailableReplicas >= *d.Spec.Replicas-maxUnavailable(d) {
		set(&s, condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, reasonMinimum, "Deployment has minimum availability.", now))
	} else {
		set(&s, condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, reasonNoMinimum, "Deployment does not have minimum availability.", now))
	}
	return s
}

// progress updates the conditions Progressing and ReplicaFailure of s.
func progress(d *appsv1.Deployment, s *appsv1.DeploymentStatus, current *appsv1.ReplicaSet, all []*appsv1.ReplicaSet, now time.Time) {
	reportFailure(s, current, all, now)
	if !hasDeadline(d) {
		drop(s, appsv1.DeploymentProgressing)
		return
	}
	resume(s, now)
	have := conditions.Find(s.Conditions, appsv1.DeploymentProgressing)
	if have == nil && current != nil {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", current.Name), now))
		have = conditions.Find(s.Conditions, appsv1.DeploymentProgressing)
	}
	if have != nil && have.Reason == reasonAvailable && s.Replicas == s.UpdatedReplicas {
		return // complete stays complete: later changes of pods are not a rollout
	}
	what := fmt.Sprintf("Deployment %q", d.Name)
	if current != nil {
		what = fmt.Sprintf("ReplicaSet %q", current.Name)
	}
	switch {
	case complete(d, s):
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonAvailable, what+" has successfully progressed.", now))
	case progressed(d.Status, s):
		c := condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, what+" is progressing.", now)
		if have != nil && have.Status == corev1.ConditionTrue {
			c.LastTransitionTime = have.LastTransitionTime
		}
		drop(s, appsv1.DeploymentProgressing) // to update the time even if nothing else changes
		s.Conditions = append(s.Conditions, c)
	case timedOut(d, have, now):
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, what+" has timed out progressing.", now))
	}
}

// created records that the replica set of the current template was created.
func created(d *appsv1.Deployment, s *appsv1.DeploymentStatus, name string, now time.Time) {
	if hasDeadline(d) {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonCreated, fmt.Sprintf("Created new replica set %q", name), now))
	}
}

// createFailed records that creating the replica set failed.
func createFailed(d *appsv1.Deployment, s *appsv1.DeploymentStatus, message string, now time.Time) {
	if hasDeadline(d) {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonCreateError, message, now))
	}
}

// pause records that the rollout is paused. A rollout that has exceeded its deadline stays
// failed.
func pause(d *appsv1.Deployment, s *appsv1.DeploymentStatus, now time.Time) {
	have := conditions.Find(s.Conditions, appsv1.DeploymentProgressing)
	if hasDeadline(d) && (have == nil || have.Reason != reasonTimedOut) {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused", now))
	}
}

func resume(s *appsv1.DeploymentStatus, now time.Time) {
	have := conditions.Find(s.Conditions, appsv1.DeploymentProgressing)
	if have != nil && have.Reason == reasonPaused {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed", now))
	}
}

// reportFailure copies the failure condition of the replica sets, of the current one first.
func reportFailure(s *appsv1.DeploymentStatus, current *appsv1.ReplicaSet, all []*appsv1.ReplicaSet, now time.Time) {
	if current != nil {
		all = append([]*appsv1.ReplicaSet{current}, all...)
	}
	for _, rs := range all {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				set(s, condition(appsv1.DeploymentReplicaFailure, c.Status, c.Reason, c.Message, now))
				return
			}
		}
	}
	drop(s, appsv1.DeploymentReplicaFailure)
}

func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	want := *d.Spec.Replicas
	return s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want && s.ObservedGeneration >= d.Generation
}

// progressed reports whether the rollout advanced since the status before.
func progressed(before appsv1.DeploymentStatus, s *appsv1.DeploymentStatus) bool {
	return s.UpdatedReplicas > before.UpdatedReplicas ||
		s.Replicas-s.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		s.ReadyReplicas > before.ReadyReplicas ||
		s.AvailableReplicas > before.AvailableReplicas
}

func timedOut(d *appsv1.Deployment, have *appsv1.DeploymentCondition, now time.Time) bool {
	if have == nil || have.Reason == reasonAvailable {
		return false
	}
	return have.Reason == reasonTimedOut || now.After(deadline(d, have))
}

func deadline(d *appsv1.Deployment, have *appsv1.DeploymentCondition) time.Time {
	return have.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
}

// untilDeadline returns the time until the progress deadline, 0 if there is none.
func untilDeadline(d *appsv1.Deployment, s *appsv1.DeploymentStatus, now time.Time) time.Duration {
	have := conditions.Find(s.Conditions, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || d.Spec.Paused || have == nil || have.Reason == reasonTimedOut || have.Reason == reasonAvailable || complete(d, s) {
		return 0
	}
	return max(0, deadline(d, have).Sub(now)) + time.Second // timestamps have whole seconds
}

func condition(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) appsv1.DeploymentCondition {
	at := metav1.Time{Time: now}
	return appsv1.DeploymentCondition{Type: t, Status: status, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at}
}

// set appends c to the conditions and removes the one of its type. It does nothing if that
// has c's status and reason already.
func set(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	have := conditions.Find(s.Conditions, c.Type)
	if have != nil && have.Status == c.Status && have.Reason == c.Reason {
		return
	}
	if have != nil && have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	s.Conditions = append(conditions.Remove(s.Conditions, c.Type), c)
}

func drop(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	s.Conditions = conditions.Remove(s.Conditions, t)
}
