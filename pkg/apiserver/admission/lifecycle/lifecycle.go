// Package lifecycle is the admission plugin NamespaceLifecycle: it refuses new
// objects in namespaces that do not exist or are terminating, and the deletion
// of the system's namespaces.
package lifecycle

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin. It admits access reviews in every namespace, so that
// their result does not reveal whether the namespace exists.
func New(h admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Delete},
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			if a.Resource.GroupResource() == corev1.Resource("namespaces") {
				if a.Operation == admission.Delete && isProtected(a.Name) {
					return admission.Forbidden(a, "this namespace may not be deleted")
				}
				return nil
			}
			if a.Operation != admission.Create || a.Namespace == "" || a.Subresource != "" || a.Resource.Group == authorizationv1.GroupName {
				return nil
			}
			ns, err := admission.Namespace(ctx, h.Objects, a.Namespace)
			switch {
			case err != nil:
				return err
			case ns == nil:
				return apierrors.NewNotFound(corev1.Resource("namespaces"), a.Namespace)
			case ns.Status.Phase == corev1.NamespaceTerminating || ns.DeletionTimestamp != nil:
				return terminating(a)
			}
			return nil
		},
	}
}

func isProtected(namespace string) bool {
	switch namespace {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return true
	}
	return false
}

// terminating returns the 403 error for a new object, with the cause by which
// clients recognize a terminating namespace.
func terminating(a *admission.Attributes) error {
	err := admission.Forbidden(a, "unable to create new content in namespace %s because it is being terminated", a.Namespace)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
		Field:   "metadata.namespace",
	})
	return err
}
