// Package runtimeclass is the admission plugin RuntimeClass: it gives a new pod
// the overhead, the node selector and the tolerations of its RuntimeClass, and
// refuses a pod whose class does not exist.
package runtimeclass

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin.
func New(h admission.Host) admission.Plugin {
	p := plugin{h.Objects}
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create},
		Resource:   corev1.Resource("pods"),
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			spec := &a.Object.(*corev1.Pod).Spec
			class, err := p.classOf(ctx, a, spec)
			if err != nil || class == nil {
				return err
			}
			if class.Overhead != nil {
				if len(spec.Overhead) > 0 && !apiequality.Semantic.DeepEqual(spec.Overhead, class.Overhead.PodFixed) {
					return differs(a)
				}
				spec.Overhead = class.Overhead.PodFixed
			}
			return place(a, spec, class.Scheduling)
		},
		Validate: func(ctx context.Context, a *admission.Attributes) error {
			spec := &a.Object.(*corev1.Pod).Spec
			class, err := p.classOf(ctx, a, spec)
			switch {
			case err != nil:
				return err
			case class == nil || class.Overhead == nil:
				if len(spec.Overhead) > 0 {
					return admission.Forbidden(a, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
				}
			case !apiequality.Semantic.DeepEqual(spec.Overhead, class.Overhead.PodFixed):
				return differs(a)
			}
			return nil
		},
	}
}

type plugin struct{ objects admission.Objects }

// classOf returns the class of a pod, nil if it names none.
func (p plugin) classOf(ctx context.Context, a *admission.Attributes, spec *corev1.PodSpec) (*nodev1.RuntimeClass, error) {
	if spec.RuntimeClassName == nil {
		return nil, nil
	}
	obj, err := p.objects.Get(ctx, nodev1.SchemeGroupVersion.WithResource("runtimeclasses"), "", *spec.RuntimeClassName)
	if apierrors.IsNotFound(err) {
		return nil, admission.Forbidden(a, "pod rejected: RuntimeClass %q not found", *spec.RuntimeClassName)
	}
	if err != nil {
		return nil, err
	}
	return obj.(*nodev1.RuntimeClass), nil
}

func differs(a *admission.Attributes) error {
	return admission.Forbidden(a, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
}

// place adds the node selector and the tolerations of a class, which may be nil,
// to a pod.
func place(a *admission.Attributes, spec *corev1.PodSpec, s *nodev1.Scheduling) error {
	if s == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if own, set := spec.NodeSelector[key]; set && own != s.NodeSelector[key] {
			return admission.Forbidden(a, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, s.NodeSelector[key], key, own)
		}
	}
	if spec.NodeSelector == nil {
		spec.NodeSelector = s.NodeSelector
	} else {
		maps.Copy(spec.NodeSelector, s.NodeSelector)
	}
	for _, t := range s.Tolerations {
		if !slices.ContainsFunc(spec.Tolerations, func(own corev1.Toleration) bool { return covers(&own, &t) }) {
			spec.Tolerations = append(spec.Tolerations, t)
		}
	}
	return nil
}

// covers reports whether a tolerates all that b does.
func covers(a, b *corev1.Toleration) bool {
	all := a.Operator == corev1.TolerationOpExists
	switch {
	case apiequality.Semantic.DeepEqual(a, b):
		return true
	case a.Key != b.Key && (a.Key != "" || !all), a.Effect != b.Effect && a.Effect != "":
		return false
	case a.TolerationSeconds != nil && (b.TolerationSeconds == nil || *b.TolerationSeconds > *a.TolerationSeconds):
		return false
	}
	return all || b.Operator != corev1.TolerationOpExists && a.Value == b.Value
}
