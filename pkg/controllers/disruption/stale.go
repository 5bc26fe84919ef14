package disruption

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/conditions"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/pods"
)

// staleTimeout is the time after which a pod that was marked as disrupted and is not being
// deleted loses the mark.
const staleTimeout = 2 * time.Minute

// stale resets stale DisruptionTarget conditions. Its keys are pods.
type stale struct {
	*loop.Loop
	pods   *informer.Informer[*corev1.Pod]
	writer controller.Writer[*corev1.Pod]
}

func newStale(c controller.Context) *stale {
	s := &stale{pods: informers.For[*corev1.Pod](c.Informers)}
	s.Loop = c.NewLoop("stale_pod_disruption", 0, s.reconcile, s.pods)
	s.writer = controller.NewWriter(c, s.Loop, s.pods)
	s.pods.OnChange(func(_, p *corev1.Pod) {
		if p != nil && mayBeStale(p) {
			s.Wake(loop.KeyOf(p))
		}
	})
	return s
}

// mayBeStale reports whether the pod has a mark that becomes stale. Those of kubelets, which
// may take any time to end a pod, do not.
func mayBeStale(p *corev1.Pod) bool {
	if !pods.Active(p) {
		return false
	}
	c := conditions.Find(p.Status.Conditions, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet
}

func (s *stale) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	p, ok := s.pods.Get(key.Namespace, key.Name)
	if !ok || !mayBeStale(p) {
		return loop.Done, nil
	}
	since := conditions.Find(p.Status.Conditions, corev1.DisruptionTarget).LastTransitionTime
	if left := time.Until(since.Add(staleTimeout)); left > 0 {
		return loop.After(left), nil
	}
	_, err := s.writer.Patch(ctx, key, p, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"resourceVersion": p.ResourceVersion},
		"status": map[string]any{"conditions": []map[string]any{{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionFalse, "reason": nil, "message": nil,
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}}},
	}, "status")
	return loop.Done, err
}
