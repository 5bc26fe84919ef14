// Package claimresize is the admission plugin PersistentVolumeClaimResize: a claim
// grows only if it is bound and its StorageClass allows expansion.
package claimresize

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin.
func New(h admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Update},
		Resource:   corev1.Resource("persistentvolumeclaims"),
		Validate: func(ctx context.Context, a *admission.Attributes) error {
			claim, old := a.Object.(*corev1.PersistentVolumeClaim), a.Old.(*corev1.PersistentVolumeClaim)
			size, before := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
			if size.Cmp(before) <= 0 {
				return nil
			}
			if old.Status.Phase != corev1.ClaimBound {
				return admission.Forbidden(a, "Only bound persistent volume claims can be expanded")
			}
			allowed, err := expandable(ctx, h.Objects, claim, old)
			if err == nil && !allowed {
				return admission.Forbidden(a, "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
			}
			return err
		},
	}
}

// expandable reports whether the class of a claim, which must be the old one,
// allows expansion.
func expandable(ctx context.Context, objects admission.Objects, claim, old *corev1.PersistentVolumeClaim) (bool, error) {
	name := className(claim)
	if name == "" || name != className(old) {
		return false, nil
	}
	obj, err := objects.Get(ctx, storagev1.SchemeGroupVersion.WithResource("storageclasses"), "", name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	allow := obj.(*storagev1.StorageClass).AllowVolumeExpansion
	return allow != nil && *allow, nil
}

func className(c *corev1.PersistentVolumeClaim) string {
	if name, set := c.Annotations[corev1.BetaStorageClassAnnotation]; set {
		return name
	}
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}
