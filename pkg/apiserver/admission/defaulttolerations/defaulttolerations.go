// Package defaulttolerations is the admission plugin DefaultTolerationSeconds:
// it limits how long a pod stays on a node that is not ready or unreachable,
// unless the pod tolerates these taints itself.
package defaulttolerations

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver/admission"
)

// seconds is how long a pod stays by default.
const seconds = 300

// New returns the plugin.
func New(admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Update},
		Resource:   corev1.Resource("pods"),
		Mutate: func(_ context.Context, a *admission.Attributes) error {
			spec := &a.Object.(*corev1.Pod).Spec
			for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
				if !tolerates(spec.Tolerations, key) {
					spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
						Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(seconds))})
				}
			}
			return nil
		},
	}
}

// tolerates reports whether a toleration concerns eviction by the taint key.
func tolerates(tolerations []corev1.Toleration, key string) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
}
