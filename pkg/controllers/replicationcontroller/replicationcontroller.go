package replicationcontroller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controller"
	"podium/pkg/controllers/replicaset"
)

// Spec describes the replication controller.
func Spec(workers int) controller.Spec {
	return controller.Spec{
		Name: "replicationcontroller-controller", Account: "replication-controller", Workers: workers,
		New: func(c controller.Context) (controller.Runner, error) {
			return replicaset.Build(c, replicaset.Kind[*corev1.ReplicationController]{
				Loop: "replicationmanager", Set: toSet, WithStatus: withStatus, NoTerminating: true,
			})
		},
	}
}

// toSet returns rc as a ReplicaSet that shares memory with it.
func toSet(rc *corev1.ReplicationController) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds,
			Selector: &metav1.LabelSelector{MatchLabels: rc.Spec.Selector},
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: rc.Status.Replicas, FullyLabeledReplicas: rc.Status.FullyLabeledReplicas,
			ReadyReplicas: rc.Status.ReadyReplicas, AvailableReplicas: rc.Status.AvailableReplicas,
			ObservedGeneration: rc.Status.ObservedGeneration,
		},
	}
	if rc.Spec.Template != nil {
		rs.Spec.Template = *rc.Spec.Template
	}
	for _, c := range rc.Status.Conditions {
		rs.Status.Conditions = append(rs.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return rs
}

// withStatus returns a copy of rc with the status of a ReplicaSet.
func withStatus(rc *corev1.ReplicationController, s appsv1.ReplicaSetStatus) *corev1.ReplicationController {
	next := rc.DeepCopy()
	next.Status = corev1.ReplicationControllerStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas,
		ReadyReplicas: s.ReadyReplicas, AvailableReplicas: s.AvailableReplicas,
		ObservedGeneration: s.ObservedGeneration,
	}
	for _, c := range s.Conditions {
		next.Status.Conditions = append(next.Status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return next
}
