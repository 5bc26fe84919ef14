package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespaces finds a namespace by name, nil if there is none. fresh asks for a
// consistent read; without it a slightly old answer will do.
type Namespaces func(ctx context.Context, name string, fresh bool) (*corev1.Namespace, error)

// NamespaceLifecycle keeps objects out of namespaces that do not exist or are
// going away, and keeps the system's own namespaces from being deleted. A
// review is answered in any namespace: else it would tell which ones exist.
func NamespaceLifecycle(find Namespaces) Func {
	return func(ctx context.Context, a *Attributes) error {
		if a.Kind.Kind.Kind == "Namespace" && a.Kind.Group == "" {
			if a.Operation == Delete && immortal(a.Name) {
				return Forbidden(a, "this namespace may not be deleted")
			}
			return nil
		}
		if a.Operation != Create || a.Namespace == "" || a.Subresource != "" || a.Kind.Review != nil {
			return nil
		}
		ns, err := find(ctx, a.Namespace, false)
		if err == nil && ns == nil {
			ns, err = find(ctx, a.Namespace, true)
		}
		switch {
		case err != nil:
			return err
		case ns == nil:
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, a.Namespace)
		case ns.Status.Phase == corev1.NamespaceTerminating || ns.DeletionTimestamp != nil:
			return terminating(a)
		}
		return nil
	}
}

func immortal(namespace string) bool {
	switch namespace {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return true
	}
	return false
}

func terminating(a *Attributes) error {
	err := Forbidden(a, "unable to create new content in namespace %s because it is being terminated", a.Namespace)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
		Field:   "metadata.namespace",
	})
	return err
}
