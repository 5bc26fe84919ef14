package registry

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

func podsGVR() schema.GroupVersionResource { return corev1.SchemeGroupVersion.WithResource("pods") }

func success() *metav1.Status { return &metav1.Status{Status: metav1.StatusSuccess} }

// podBinding returns the subresource with which the scheduler assigns a pod to a
// node.
func podBinding(cfg Config) *Subresource {
	act := func(ctx context.Context, b Backend, namespace, name string, body runtime.Object, opts *metav1.CreateOptions) (runtime.Object, error) {
		binding := body.(*corev1.Binding)
		if errs := validateBinding(binding); len(errs) > 0 {
			return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, errs)
		}
		assign := func(obj scheme.Object) error { return bind(obj.(*corev1.Pod), binding, cfg.Now()) }
		if len(opts.DryRun) > 0 {
			pod, err := b.Get(ctx, podsGVR(), namespace, name)
			if err != nil {
				return nil, err
			}
			return success(), assign(pod.DeepCopyObject().(scheme.Object))
		}
		if _, err := b.Update(ctx, podsGVR(), namespace, name, assign); err != nil {
			return nil, err
		}
		return success(), nil
	}
	return &Subresource{Name: "binding", GVK: corev1.SchemeGroupVersion.WithKind("Binding"), Act: act}
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("target")
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(path.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}

// bind assigns the pod to the node of b and sets the condition PodScheduled. It
// returns a conflict if the pod is already assigned, gated or being deleted, or if the
// UID does not match.
func bind(pod *corev1.Pod, b *corev1.Binding, now time.Time) error {
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(corev1.Resource("pods/binding"), pod.Name, fmt.Errorf(format, args...))
	}
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, pod.UID)
	case pod.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return conflict("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return conflict("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Status.NominatedNodeName = ""
	pod.Spec.NodeName = b.Target.Name
	for key, value := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	}
	setCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, now)
	return nil
}

// setCondition sets the condition of c's type. The transition time changes only if
// the status does.
func setCondition(status *corev1.PodStatus, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	for i := range status.Conditions {
		old := &status.Conditions[i]
		if old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			*old = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}
