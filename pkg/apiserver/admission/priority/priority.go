// Package priority is the admission plugin Priority: it sets the priority of a
// new pod from its PriorityClass, and keeps a second class from being the
// default of pods without one.
package priority

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/scheme"
)

// New returns the plugin.
func New(h admission.Host) admission.Plugin {
	p := plugin{h.Objects}
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Update},
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			pod, ok := a.Object.(*corev1.Pod)
			if !ok || a.Subresource != "" {
				return nil
			}
			if a.Operation == admission.Create {
				return p.resolve(ctx, a, pod)
			}
			if pod.Spec.Priority == nil {
				pod.Spec.Priority = a.Old.(*corev1.Pod).Spec.Priority // a client may omit what it has not set
			}
			return nil
		},
		Validate: func(ctx context.Context, a *admission.Attributes) error {
			if class, ok := a.Object.(*schedulingv1.PriorityClass); ok && class.GlobalDefault {
				return p.onlyDefault(ctx, a, class)
			}
			return nil
		},
	}
}

type plugin struct{ objects admission.Objects }

func resource() schema.GroupVersionResource {
	return schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")
}

// resolve sets the priority of a new pod. It refuses an unknown class and
// values that contradict the class.
func (p plugin) resolve(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) error {
	class, err := p.classOf(ctx, pod.Spec.PriorityClassName)
	if apierrors.IsNotFound(err) {
		return admission.Forbidden(a, "no PriorityClass with name %s was found", pod.Spec.PriorityClassName)
	}
	if err != nil {
		return err
	}
	policy := corev1.PreemptLowerPriority
	if class.PreemptionPolicy != nil {
		policy = *class.PreemptionPolicy
	}
	if set := pod.Spec.Priority; set != nil && *set != class.Value {
		return admission.Forbidden(a, "the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *set, class.Value)
	}
	if set := pod.Spec.PreemptionPolicy; set != nil && *set != policy {
		return admission.Forbidden(a, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *set, policy)
	}
	value := class.Value
	pod.Spec.PriorityClassName, pod.Spec.Priority = class.Name, &value
	if policy != corev1.PreemptLowerPriority {
		pod.Spec.PreemptionPolicy = &policy
	}
	return nil
}

// classOf returns the class of that name. For "" it returns the default class,
// or one without a name and with priority 0 if there is no default.
func (p plugin) classOf(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		list, err := p.objects.RecentList(ctx, resource(), "")
		if err != nil {
			return nil, err
		}
		if class := defaultOf(list); class != nil {
			return class, nil
		}
		return &schedulingv1.PriorityClass{}, nil
	}
	obj, err := admission.Cached(ctx, p.objects, resource(), "", name)
	if err != nil {
		return nil, err
	}
	return obj.(*schedulingv1.PriorityClass), nil
}

// defaultOf returns the default class, nil if there is none. Of several, which
// concurrent writes can make, it is the one with the lowest value.
func defaultOf(list []scheme.Object) (out *schedulingv1.PriorityClass) {
	for _, obj := range list {
		if class := obj.(*schedulingv1.PriorityClass); class.GlobalDefault && (out == nil || class.Value < out.Value) {
			out = class
		}
	}
	return out
}

// onlyDefault refuses a default class while there is another.
func (p plugin) onlyDefault(ctx context.Context, a *admission.Attributes, class *schedulingv1.PriorityClass) error {
	list, err := p.objects.List(ctx, resource(), "")
	if err != nil {
		return err
	}
	if other := defaultOf(list); other != nil && (a.Operation == admission.Create || other.Name != class.Name) {
		return admission.Forbidden(a, "PriorityClass %v is already marked as default. Only one default can exist", other.Name)
	}
	return nil
}
