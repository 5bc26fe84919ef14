package deployment

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of the conditions.
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

// count adds up the replica sets. The conditions are those d has, with
// Available brought up to date.
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

// progress brings the conditions Progressing and ReplicaFailure of s up to date.
func progress(d *appsv1.Deployment, s *appsv1.DeploymentStatus, current *appsv1.ReplicaSet, all []*appsv1.ReplicaSet, now time.Time) {
	reportFailure(s, current, all, now)
	if !hasDeadline(d) {
		drop(s, appsv1.DeploymentProgressing)
		return
	}
	resume(s, now)
	have := find(s.Conditions, appsv1.DeploymentProgressing)
	if have == nil && current != nil {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", current.Name), now))
		have = find(s.Conditions, appsv1.DeploymentProgressing)
	}
	if have != nil && have.Reason == reasonAvailable && s.Replicas == s.UpdatedReplicas {
		return // done, and stays done: pods that come and go later are no rollout
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
		drop(s, appsv1.DeploymentProgressing) // the time of the update counts, even where nothing else changes
		s.Conditions = append(s.Conditions, c)
	case timedOut(d, have, now):
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, what+" has timed out progressing.", now))
	}
}

// created notes that the replica set of the present template was just made.
func created(d *appsv1.Deployment, s *appsv1.DeploymentStatus, name string, now time.Time) {
	if hasDeadline(d) {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonCreated, fmt.Sprintf("Created new replica set %q", name), now))
	}
}

// createFailed notes that it could not be made.
func createFailed(d *appsv1.Deployment, s *appsv1.DeploymentStatus, message string, now time.Time) {
	if hasDeadline(d) {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonCreateError, message, now))
	}
}

// pause notes that the rollout stands still because the user said so. A
// rollout that had failed before stays failed.
func pause(d *appsv1.Deployment, s *appsv1.DeploymentStatus, now time.Time) {
	have := find(s.Conditions, appsv1.DeploymentProgressing)
	if hasDeadline(d) && (have == nil || have.Reason != reasonTimedOut) {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused", now))
	}
}

func resume(s *appsv1.DeploymentStatus, now time.Time) {
	have := find(s.Conditions, appsv1.DeploymentProgressing)
	if have != nil && have.Reason == reasonPaused {
		set(s, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed", now))
	}
}

// reportFailure repeats what the replica sets say went wrong, the present one first.
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

// progressed says that the rollout came further since the status before.
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

// untilDeadline is when to look whether the rollout has timed out, 0 for never.
func untilDeadline(d *appsv1.Deployment, s *appsv1.DeploymentStatus, now time.Time) time.Duration {
	have := find(s.Conditions, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || d.Spec.Paused || have == nil || have.Reason == reasonTimedOut || have.Reason == reasonAvailable || complete(d, s) {
		return 0
	}
	return max(0, deadline(d, have).Sub(now)) + time.Second // times have whole seconds
}

func condition(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) appsv1.DeploymentCondition {
	at := metav1.Time{Time: now}
	return appsv1.DeploymentCondition{Type: t, Status: status, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at}
}

func find(list []appsv1.DeploymentCondition, t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range list {
		if list[i].Type == t {
			c := list[i]
			return &c
		}
	}
	return nil
}

// set replaces the condition of c's type, unless it has the status and the
// reason already.
func set(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	have := find(s.Conditions, c.Type)
	if have != nil && have.Status == c.Status && have.Reason == c.Reason {
		return
	}
	if have != nil && have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	drop(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func drop(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	var kept []appsv1.DeploymentCondition
	for _, c := range s.Conditions {
		if c.Type != t {
			kept = append(kept, c)
		}
	}
	s.Conditions = kept
}
