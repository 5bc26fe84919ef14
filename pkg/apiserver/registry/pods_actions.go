package registry

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

func podsGVR() schema.GroupVersionResource { return corev1.SchemeGroupVersion.WithResource("pods") }

func success() *metav1.Status { return &metav1.Status{Status: metav1.StatusSuccess} }

// podBinding assigns a pod to a node: the scheduler's one write.
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
	}
	pod.Spec.NodeName = b.Target.Name
	for key, value := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	}
	setCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, now)
	return nil
}

// setCondition replaces the condition of that type; its time is that of the
// last change of status.
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

// podEviction deletes a pod if nothing asks to spare it.
func podEviction(cfg Config) *Subresource {
	act := func(ctx context.Context, b Backend, namespace, name string, body runtime.Object, opts *metav1.CreateOptions) (runtime.Object, error) {
		eviction := body.(*policyv1.Eviction)
		if eviction.Name != "" && eviction.Name != name {
			return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
		}
		options := eviction.DeleteOptions
		if options == nil {
			options = &metav1.DeleteOptions{}
		}
		if len(opts.DryRun) > 0 {
			options.DryRun = opts.DryRun
		}
		if len(options.DryRun) == 0 {
			if err := markEvicted(ctx, b, namespace, name, options.Preconditions, cfg.Now()); err != nil {
				return nil, err
			}
			// The mark is a write of ours: what the caller asked of the
			// resourceVersion has been checked with it.
			if p := options.Preconditions; p != nil {
				options.Preconditions = &metav1.Preconditions{UID: p.UID}
			}
		}
		return success(), b.Delete(ctx, podsGVR(), namespace, name, options)
	}
	return &Subresource{Name: "eviction", GVK: policyv1.SchemeGroupVersion.WithKind("Eviction"), Act: act}
}

// markEvicted says in the pod's status why it goes, for whoever sees it go.
func markEvicted(ctx context.Context, b Backend, namespace, name string, p *metav1.Preconditions, now time.Time) error {
	_, err := b.Update(ctx, podsGVR(), namespace, name, func(obj scheme.Object) error {
		pod := obj.(*corev1.Pod)
		if err := checkPreconditions(pod, p); err != nil {
			return err
		}
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			return nil
		}
		setCondition(&pod.Status, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}, now)
		return nil
	})
	return err
}

func checkPreconditions(pod *corev1.Pod, p *metav1.Preconditions) error {
	switch {
	case p == nil:
		return nil
	case p.UID != nil && *p.UID != pod.UID:
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name,
			fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, pod.UID))
	case p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion:
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name,
			fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, pod.ResourceVersion))
	}
	return nil
}
