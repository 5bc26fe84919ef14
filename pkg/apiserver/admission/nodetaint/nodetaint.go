// Package nodetaint is the admission plugin TaintNodesByCondition: it taints a
// new Node until the node lifecycle controller has seen it ready and removes the
// taint.
package nodetaint

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin.
func New(admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create},
		Resource:   corev1.Resource("nodes"),
		Mutate: func(_ context.Context, a *admission.Attributes) error {
			spec := &a.Object.(*corev1.Node).Spec
			taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
			if !slices.ContainsFunc(spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
				spec.Taints = append(spec.Taints, taint)
			}
			return nil
		},
	}
}
