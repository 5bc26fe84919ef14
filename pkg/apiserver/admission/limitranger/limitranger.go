// Package limitranger is the admission plugin LimitRanger: it gives new pods the
// default resources of the LimitRanges in their namespace, and refuses pods and
// persistent volume claims beyond their limits.
package limitranger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin.
func New(h admission.Host) admission.Plugin {
	each := func(do func(*corev1.LimitRange, metav1.Object) error) admission.Func {
		return func(ctx context.Context, a *admission.Attributes) error {
			if !handles(a) {
				return nil
			}
			ranges, err := h.Objects.RecentList(ctx, corev1.SchemeGroupVersion.WithResource("limitranges"), a.Namespace)
			if err != nil {
				return err
			}
			for _, r := range ranges {
				if err := do(r.(*corev1.LimitRange), a.Object); err != nil {
					return admission.Forbidden(a, "%w", err)
				}
			}
			return nil
		}
	}
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Update},
		Mutate: each(func(r *corev1.LimitRange, obj metav1.Object) error {
			if pod, ok := obj.(*corev1.Pod); ok {
				setDefaults(r, pod)
			}
			return nil
		}),
		Validate: each(validate),
	}
}

// handles reports whether the plugin looks at a request: the resources of a pod are
// set when it is created and resized, those of a claim also when it is updated.
func handles(a *admission.Attributes) bool {
	if a.Old != nil && a.Old.GetDeletionTimestamp() != nil {
		return false
	}
	switch a.Object.(type) {
	case *corev1.Pod:
		return a.Operation == admission.Create && a.Subresource == "" || a.Subresource == "resize"
	case *corev1.PersistentVolumeClaim:
		return a.Subresource == ""
	}
	return false
}

// annotation says which resources of a pod are defaults.
const annotation = "kubernetes.io/limit-ranger"

// setDefaults sets the requests and limits that the containers of a pod do not have.
func setDefaults(r *corev1.LimitRange, pod *corev1.Pod) {
	limits, requests := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range r.Spec.Limits {
		if item := &r.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			maps.Copy(limits, item.Default)
			maps.Copy(requests, item.DefaultRequest)
		}
	}
	var done []string
	set := func(c *corev1.Container, kind string) {
		if names := fill(&c.Resources.Requests, requests); names != "" {
			done = append(done, fmt.Sprintf("%s request for %s %s", names, kind, c.Name))
		}
		if names := fill(&c.Resources.Limits, limits); names != "" {
			done = append(done, fmt.Sprintf("%s limit for %s %s", names, kind, c.Name))
		}
	}
	for i := range pod.Spec.Containers {
		set(&pod.Spec.Containers[i], "container")
	}
	for i := range pod.Spec.InitContainers {
		set(&pod.Spec.InitContainers[i], "init container")
	}
	if len(done) > 0 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotation, "LimitRanger plugin set: "+strings.Join(done, "; "))
	}
}

// fill adds the quantities of defaults that list does not have, and returns their
// names.
func fill(list *corev1.ResourceList, defaults corev1.ResourceList) string {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = defaults[name].DeepCopy()
		set = append(set, string(name))
	}
	return strings.Join(set, ", ")
}

// validate returns all violations of a LimitRange by an object.
func validate(r *corev1.LimitRange, obj metav1.Object) error {
	var errs []error
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		switch obj := obj.(type) {
		case *corev1.Pod:
			errs = append(errs, checkPod(item, obj)...)
		case *corev1.PersistentVolumeClaim:
			if item.Type == corev1.LimitTypePersistentVolumeClaim {
				errs = append(errs, checkClaim(item, obj.Spec.Resources.Requests)...)
			}
		}
	}
	return utilerrors.NewAggregate(errs)
}
