package volumeexpand

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
	"podium/pkg/volumebinding"
)

// step is the next write of an expansion; the zero value is none.
type step struct {
	Status *corev1.PersistentVolumeClaimStatus // of the claim
	Grow   bool                                // set the capacity of the volume to what the claim requests

	EventType, Reason, Message string // an event on the claim, if there is a write or none is needed
}

// expands reports whether a bound claim requests more than it has, or an earlier expansion
// of it is recorded.
func expands(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil {
		return false
	}
	requested, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return requested.Cmp(has) > 0 || claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != ""
}

// decide returns the next step of the expansion of a claim: it is recorded in the claim's
// status, then the volume grows, then the claim has its new capacity. node is the home of
// the volume; it may be nil. Each step may be repeated.
func decide(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, node *corev1.Node, now time.Time) step {
	if !expands(claim) {
		return step{}
	}
	if !volumebinding.IsLocalPath(v) {
		return step{EventType: corev1.EventTypeNormal, Reason: "ExternalExpanding",
			Message: "Ignoring the PVC: didn't find a plugin capable of expanding the volume; waiting for an external controller to process this PVC."}
	}
	size, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], v.Spec.Capacity[corev1.ResourceStorage]
	if size.Cmp(has) <= 0 {
		return finished(claim, v)
	}
	if why := volumebinding.TooLarge(node, claim); why != "" {
		next := recorded(claim, now, corev1.PersistentVolumeClaimControllerResizeInfeasible,
			condition(corev1.PersistentVolumeClaimResizing, ""), condition(corev1.PersistentVolumeClaimControllerResizeError, why))
		if same(next, &claim.Status) {
			return step{}
		}
		return step{Status: next, EventType: corev1.EventTypeWarning, Reason: "VolumeResizeFailed", Message: why}
	}
	next := recorded(claim, now, corev1.PersistentVolumeClaimControllerResizeInProgress, condition(corev1.PersistentVolumeClaimResizing, ""))
	if !same(next, &claim.Status) {
		return step{Status: next}
	}
	return step{Grow: true}
}

// finished returns the step that gives a claim the capacity of its volume. Nothing is to
// be done on the node: the volume is a directory.
func finished(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) step {
	next := claim.Status.DeepCopy()
	if next.Capacity == nil {
		next.Capacity = corev1.ResourceList{}
	}
	has, had := v.Spec.Capacity[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	next.Capacity[corev1.ResourceStorage] = has
	if _, set := next.AllocatedResources[corev1.ResourceStorage]; set {
		next.AllocatedResources[corev1.ResourceStorage] = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	delete(next.AllocatedResourceStatuses, corev1.ResourceStorage)
	next.Conditions = volumebinding.WithoutResize(next.Conditions)
	if has.Cmp(had) <= 0 { // the request was reduced again
		return step{Status: next}
	}
	return step{Status: next, EventType: corev1.EventTypeNormal, Reason: "VolumeResizeSuccessful", Message: "Resize volume succeeded"}
}

// recorded returns the status of a claim while its expansion is in a state.
func recorded(claim *corev1.PersistentVolumeClaim, now time.Time, state corev1.ClaimResourceStatus, current ...corev1.PersistentVolumeClaimCondition) *corev1.PersistentVolumeClaimStatus {
	next := claim.Status.DeepCopy()
	next.AllocatedResources = maps.Clone(next.AllocatedResources)
	if next.AllocatedResources == nil {
		next.AllocatedResources = corev1.ResourceList{}
	}
	next.AllocatedResources[corev1.ResourceStorage] = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if next.AllocatedResourceStatuses == nil {
		next.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	next.AllocatedResourceStatuses[corev1.ResourceStorage] = state
	next.Conditions = volumebinding.WithoutResize(next.Conditions)
	for _, c := range current {
		c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		if old := conditions.Find(claim.Status.Conditions, c.Type); old != nil {
			c.LastTransitionTime = old.LastTransitionTime
		}
		next.Conditions = append(next.Conditions, c)
	}
	return next
}

func condition(t corev1.PersistentVolumeClaimConditionType, message string) corev1.PersistentVolumeClaimCondition {
	return corev1.PersistentVolumeClaimCondition{Type: t, Status: corev1.ConditionTrue, Message: message}
}

func same(a, b *corev1.PersistentVolumeClaimStatus) bool {
	return apiequality.Semantic.DeepEqual(a, b)
}
