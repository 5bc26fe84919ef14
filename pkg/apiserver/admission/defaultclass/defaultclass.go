// Package defaultclass has the admission plugins DefaultStorageClass and
// DefaultIngressClass, which give a new object without a class the class that an
// annotation marks as the default.
package defaultclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/defaultclass"
)

// The annotations that named the class before the field did.
const (
	betaStorageClass = corev1.BetaStorageClassAnnotation
	betaIngressClass = "kubernetes.io/ingress.class"
)

// Storage returns the plugin DefaultStorageClass.
func Storage(h admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create},
		Resource:   corev1.Resource("persistentvolumeclaims"),
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			claim := a.Object.(*corev1.PersistentVolumeClaim)
			if _, set := claim.Annotations[betaStorageClass]; set || claim.Spec.StorageClassName != nil {
				return nil
			}
			var err error
			claim.Spec.StorageClassName, err = newest(ctx, h.Objects, storagev1.SchemeGroupVersion.WithResource("storageclasses"), defaultclass.Storage()...)
			return err
		},
	}
}

// Ingress returns the plugin DefaultIngressClass.
func Ingress(h admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create},
		Resource:   networkingv1.Resource("ingresses"),
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			ingress := a.Object.(*networkingv1.Ingress)
			if _, set := ingress.Annotations[betaIngressClass]; set || ingress.Spec.IngressClassName != nil {
				return nil
			}
			var err error
			ingress.Spec.IngressClassName, err = newest(ctx, h.Objects, networkingv1.SchemeGroupVersion.WithResource("ingressclasses"), networkingv1.AnnotationIsDefaultIngressClass)
			return err
		},
	}
}

// newest returns the name of the newest class with one of the annotations; nil if there is
// none.
func newest(ctx context.Context, objects admission.Objects, gvr schema.GroupVersionResource, annotations ...string) (*string, error) {
	list, err := objects.List(ctx, gvr, "")
	if err != nil {
		return nil, err
	}
	found := defaultclass.Newest(list, annotations)
	if found == nil {
		return nil, nil
	}
	name := found.GetName()
	return &name, nil
}
