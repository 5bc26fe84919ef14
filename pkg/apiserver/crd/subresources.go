package crd

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// subresources returns the subresources of the version.
func (r *rules) subresources() (out []*registry.Subresource) {
	if r.status {
		out = append(out, &registry.Subresource{
			Name: "status", GVK: r.gvk,
			PreparePart: func(_ context.Context, new, old scheme.Object) error {
				keepAllButStatus(new.(*unstructured.Unstructured), old.(*unstructured.Unstructured))
				return nil
			},
			ValidatePart: func(new, old scheme.Object) field.ErrorList {
				return r.validateStatus(new.(*unstructured.Unstructured), old.(*unstructured.Unstructured))
			},
		})
	}
	if r.scale != nil {
		out = append(out, &registry.Subresource{
			Name: "scale", GVK: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Replicas: split(r.scale.SpecReplicasPath),
			View:  func(obj scheme.Object) (runtime.Object, error) { return r.viewScale(obj.(*unstructured.Unstructured)) },
			Merge: func(obj scheme.Object, view runtime.Object) error { return r.mergeScale(obj, view) },
		})
	}
	return out
}

// viewScale returns the Scale of an object.
func (r *rules) viewScale(u *unstructured.Unstructured) (*autoscalingv1.Scale, error) {
	wanted, ok, err := unstructured.NestedInt64(u.Object, split(r.scale.SpecReplicasPath)...)
	if err == nil && !ok {
		err = fmt.Errorf("the spec replicas field %q does not exist", r.scale.SpecReplicasPath)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	running, _, err := unstructured.NestedInt64(u.Object, split(r.scale.StatusReplicasPath)...)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	out := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(),
			ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(wanted)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(running)},
	}
	if path := r.scale.LabelSelectorPath; path != nil && *path != "" {
		if out.Status.Selector, _, err = unstructured.NestedString(u.Object, split(*path)...); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return out, nil
}

// mergeScale sets the wanted number of replicas.
func (r *rules) mergeScale(obj scheme.Object, view runtime.Object) error {
	content := obj.(*unstructured.Unstructured).Object
	wanted := int64(view.(*autoscalingv1.Scale).Spec.Replicas)
	if err := unstructured.SetNestedField(content, wanted, split(r.scale.SpecReplicasPath)...); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}
