// Package conditions reads and changes the condition lists of object statuses.
package conditions

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is a condition type of the API. To add one, add a line here and in
// fields.
type Condition interface {
	corev1.PodCondition | corev1.NodeCondition | corev1.NamespaceCondition | corev1.PersistentVolumeClaimCondition |
		appsv1.DeploymentCondition | appsv1.ReplicaSetCondition |
		autoscalingv2.HorizontalPodAutoscalerCondition |
		batchv1.JobCondition | apiextensionsv1.CustomResourceDefinitionCondition |
		flowcontrolv1.FlowSchemaCondition
}

// fields returns what all conditions have.
func fields[C Condition](c *C) (conditionType string, status corev1.ConditionStatus, transition *metav1.Time) {
	switch c := any(c).(type) {
	case *corev1.PodCondition:
		return string(c.Type), c.Status, &c.LastTransitionTime
	case *corev1.NodeCondition:
		return string(c.Type), c.Status, &c.LastTransitionTime
	case *corev1.NamespaceCondition:
		return string(c.Type), c.Status, &c.LastTransitionTime
	case *corev1.PersistentVolumeClaimCondition:
		return string(c.Type), c.Status, &c.LastTransitionTime
	case *appsv1.DeploymentCondition:
		return string(c.Type), c.Status, &c.LastTransitionTime
	case *appsv1.ReplicaSetCondition:
		return string(c.Type), c.Status, &c.LastTransitionTime
	case *autoscalingv2.HorizontalPodAutoscalerCondition:
		return string(c.Type), c.Status, &c.LastTransitionTime
	case *batchv1.JobCondition:
		return string(c.Type), c.Status, &c.LastTransitionTime
	case *flowcontrolv1.FlowSchemaCondition:
		return string(c.Type), corev1.ConditionStatus(c.Status), &c.LastTransitionTime
	case *apiextensionsv1.CustomResourceDefinitionCondition:
		return string(c.Type), corev1.ConditionStatus(c.Status), &c.LastTransitionTime
	}
	panic("conditions: a type of the constraint is missing in fields")
}

// Find returns the condition of a type: a pointer into list, nil if there is
// none.
func Find[C Condition, T ~string](list []C, conditionType T) *C {
	for i := range list {
		if t, _, _ := fields(&list[i]); t == string(conditionType) {
			return &list[i]
		}
	}
	return nil
}

// Status returns the status of the condition of a type, "" if there is none.
func Status[C Condition, T ~string](list []C, conditionType T) corev1.ConditionStatus {
	c := Find(list, conditionType)
	if c == nil {
		return ""
	}
	_, status, _ := fields(c)
	return status
}

// IsTrue reports whether the condition of a type has the status True.
func IsTrue[C Condition, T ~string](list []C, conditionType T) bool {
	return Status(list, conditionType) == corev1.ConditionTrue
}

// Set returns list with c in place of the condition of c's type, or at its end.
// While the status stays the same, so does the last transition time; otherwise
// it is c's. Set changes the elements of list.
func Set[C Condition](list []C, c C) []C {
	t, status, transition := fields(&c)
	have := Find(list, t)
	if have == nil {
		return append(list, c)
	}
	if _, was, since := fields(have); was == status {
		*transition = *since
	}
	*have = c
	return list
}

// Remove returns list, which it changes, without the condition of a type.
func Remove[C Condition, T ~string](list []C, conditionType T) []C {
	return slices.DeleteFunc(list, func(c C) bool { t, _, _ := fields(&c); return t == string(conditionType) })
}
