package disruption

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	pdbhelper "k8s.io/component-helpers/apps/poddisruptionbudget"

	"podium/pkg/controller/pods"
)

// deletionTimeout is the time after which a pod whose eviction was allowed and that is not
// being deleted counts as healthy again.
const deletionTimeout = 2 * time.Minute

// scaled reports whether the budget depends on the scale of the pods' controllers: it is a
// percentage, or a number of pods that may be missing.
func scaled(b *policyv1.PodDisruptionBudget) bool {
	s := &b.Spec
	return s.MaxUnavailable != nil || s.MinAvailable != nil && s.MinAvailable.Type == intstr.String
}

// desiredHealthy returns how many of the expected pods must be healthy.
func desiredHealthy(b *policyv1.PodDisruptionBudget, expected int32) (int32, error) {
	s := &b.Spec
	switch {
	case s.MaxUnavailable != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(s.MaxUnavailable, int(expected), true)
		return max(0, expected-int32(n)), err
	case s.MinAvailable != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(s.MinAvailable, int(expected), true)
		return int32(n), err
	}
	return 0, nil
}

// outcome is the result of one look at a budget.
type outcome struct {
	Status  policyv1.PodDisruptionBudgetStatus
	Overdue []*corev1.Pod // pods that should have been deleted by now
	Recheck time.Duration // until the next pod is overdue; 0: never
}

// decide counts the pods that the budget selects.
func decide(b *policyv1.PodDisruptionBudget, selected []*corev1.Pod, expected, desired int32, now time.Time) (o outcome) {
	disrupted := map[string]metav1.Time{}
	healthy := int32(0)
	for _, p := range selected {
		if p.DeletionTimestamp != nil {
			continue
		}
		at, leaving := b.Status.DisruptedPods[p.Name]
		if left := at.Add(deletionTimeout).Sub(now); leaving && left > 0 {
			disrupted[p.Name] = at
			if o.Recheck == 0 || left < o.Recheck {
				o.Recheck = left
			}
			continue
		}
		if leaving {
			o.Overdue = append(o.Overdue, p)
		}
		if pods.Ready(p) {
			healthy++
		}
	}
	next := policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DisruptedPods: disrupted,
		CurrentHealthy: healthy, DesiredHealthy: desired, ExpectedPods: expected,
		Conditions: b.DeepCopy().Status.Conditions,
	}}
	if expected > 0 { // before the first pods are seen, the numbers may be old
		next.Status.DisruptionsAllowed = max(0, healthy-desired)
	}
	pdbhelper.UpdateDisruptionAllowedCondition(&next)
	o.Status = next.Status
	return o
}
