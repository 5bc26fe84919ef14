// Package extendedresources is the admission plugin ExtendedResourceToleration: a pod
// that requests an extended resource, such as a GPU, tolerates the taint of that name
// on the nodes that are reserved for such pods.
package extendedresources

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin.
func New(admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Update},
		Resource:   corev1.Resource("pods"),
		Mutate: func(_ context.Context, a *admission.Attributes) error {
			spec := &a.Object.(*corev1.Pod).Spec
			for _, name := range requested(spec) {
				tolerate(spec, corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
			}
			return nil
		},
	}
}

// requested returns the extended resources that a pod requests, sorted.
func requested(spec *corev1.PodSpec) []string {
	found := map[string]bool{}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if extended(string(name)) {
					found[string(name)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// extended reports whether a resource is none of Kubernetes' own.
func extended(name string) bool {
	domain, _, qualified := strings.Cut(name, "/")
	if !qualified || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

// tolerate adds a toleration unless the pod has one that covers it.
func tolerate(spec *corev1.PodSpec, want corev1.Toleration) {
	covered := func(t corev1.Toleration) bool {
		return (t.Key == want.Key || t.Key == "") && t.Operator == corev1.TolerationOpExists && (t.Effect == want.Effect || t.Effect == "")
	}
	if !slices.ContainsFunc(spec.Tolerations, covered) {
		spec.Tolerations = append(spec.Tolerations, want)
	}
}
