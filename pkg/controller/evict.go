package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/conditions"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/pods"
)

// Evict sets the condition DisruptionTarget on a pod, unless it has it, and deletes the pod. It
// reports whether the pod was deleted.
func Evict(ctx context.Context, w Writer[*corev1.Pod], key loop.Key, p *corev1.Pod, reason, message string) (bool, error) {
	if !conditions.IsTrue(p.Status.Conditions, corev1.DisruptionTarget) {
		_, err := w.Patch(ctx, key, p, types.StrategicMergePatchType, map[string]any{"status": map[string]any{
			"conditions": pods.DisruptionTarget(reason, message, time.Now()),
		}}, "status")
		if err != nil {
			return false, err
		}
	}
	return w.Delete(ctx, key, p, metav1.DeleteOptions{})
}
