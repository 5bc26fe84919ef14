// Package storageprotection is the admission plugin StorageObjectInUseProtection: new
// claims, volumes and VolumeAttributesClasses have the finalizer that keeps them while they
// are used.
package storageprotection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin.
func New(admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create},
		Mutate: func(_ context.Context, a *admission.Attributes) error {
			if a.Subresource != "" {
				return nil
			}
			finalizer := ""
			switch a.Object.(type) {
			case *corev1.PersistentVolumeClaim:
				finalizer = "kubernetes.io/pvc-protection"
			case *corev1.PersistentVolume:
				finalizer = "kubernetes.io/pv-protection"
			case *storagev1.VolumeAttributesClass:
				finalizer = "kubernetes.io/vac-protection"
			}
			if finalizer != "" && !slices.Contains(a.Object.GetFinalizers(), finalizer) {
				a.Object.SetFinalizers(append(a.Object.GetFinalizers(), finalizer))
			}
			return nil
		},
	}
}
