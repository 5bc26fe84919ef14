package registry

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

func namespaces(k *scheme.Kind, _ Config) *Kind {
	keepSpec := func(new, old *corev1.Namespace) { new.Spec = old.Spec }
	return Of[*corev1.Namespace]{
		Default:      nameLabel,
		Prepare:      prepareNamespace,
		Validate:     func(new, _ *corev1.Namespace) field.ErrorList { return validateFinalizers(new) },
		ValidateName: apivalidation.NameIsDNSLabel,
		Columns:      columns(column("Status", "The status of the namespace"), ageColumn()),
		Row: func(ns *corev1.Namespace, now time.Time) []any {
			return []any{ns.Name, string(ns.Status.Phase), age(ns.CreationTimestamp, now)}
		},
		Fields: func(ns *corev1.Namespace) fields.Set {
			return fields.Set{"status.phase": string(ns.Status.Phase)}
		},
		BeforeDelete:             deleteNamespace,
		AllowUnconditionalUpdate: true,
		NoDeleteCollection:       true,
		Subresources: []*Subresource{
			part(k, "status", keepSpec, validateNamespaceStatus),
			part(k, "finalize", func(new, old *corev1.Namespace) { new.Status = old.Status },
				func(new, _ *corev1.Namespace) field.ErrorList { return validateFinalizers(new) }),
		},
	}.Kind(k)
}

// nameLabel sets the label by which selectors match a namespace's name.
func nameLabel(ns *corev1.Namespace) {
	if ns.Name != "" {
		metav1.SetMetaDataLabel(&ns.ObjectMeta, corev1.LabelMetadataName, ns.Name)
	}
}

func prepareNamespace(_ context.Context, _ Backend, new, old *corev1.Namespace) error {
	nameLabel(new) // a generated name was not known to Default
	if old != nil {
		new.Spec, new.Status = old.Spec, old.Status
		return nil
	}
	new.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(new.Spec.Finalizers, corev1.FinalizerKubernetes) {
		new.Spec.Finalizers = append(new.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	return nil
}

func validateFinalizers(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for i, f := range ns.Spec.Finalizers {
		if f != corev1.FinalizerKubernetes {
			errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(string(f)), path.Index(i), f)...)
		}
	}
	return errs
}

// validateNamespaceStatus checks that the phase matches the deletion timestamp.
func validateNamespaceStatus(new, _ *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "phase")
	switch {
	case new.DeletionTimestamp == nil && new.Status.Phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, new.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case new.DeletionTimestamp != nil && new.Status.Phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(path, new.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// deleteNamespace starts the termination of a namespace. The namespace remains
// until the namespace controller has deleted its content and all spec.finalizers
// are removed.
func deleteNamespace(ns *corev1.Namespace, _ *metav1.DeleteOptions, now time.Time) (keep bool, err error) {
	if ns.DeletionTimestamp == nil {
		stamp := metav1.NewTime(now).Rfc3339Copy()
		ns.DeletionTimestamp = &stamp
	}
	ns.Status.Phase = corev1.NamespaceTerminating
	return len(ns.Spec.Finalizers) > 0, nil
}
