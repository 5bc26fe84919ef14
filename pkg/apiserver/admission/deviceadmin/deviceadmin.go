// Package deviceadmin refuses ResourceClaims with administrative access, which reaches devices
// that other claims have, except in namespaces whose label admits it. Upstream does this as part
// of the kinds: the plugin cannot be disabled.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#admin-access
package deviceadmin

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin.
func New(h admission.Host) admission.Plugin {
	return admission.Plugin{
		Name:       "DRAAdminAccess",
		Operations: []admission.Operation{admission.Create, admission.Update},
		Validate: func(ctx context.Context, a *admission.Attributes) error {
			path := wanted(a)
			if path == nil {
				return nil
			}
			ns, err := admission.Namespace(ctx, h.Objects, a.Namespace)
			if err != nil {
				return err
			}
			if ns != nil && ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
				return nil
			}
			return apierrors.NewInvalid(a.Kind.GroupKind(), a.Object.GetName(), field.ErrorList{
				field.Forbidden(path, "admin access to devices requires the `"+resourcev1.DRAAdminNamespaceLabelKey+": true` label on the containing namespace"),
			})
		},
	}
}

// wanted returns the field by which an object newly asks for administrative access, nil if it
// does not. Specs cannot change.
func wanted(a *admission.Attributes) *field.Path {
	switch o := a.Object.(type) {
	case *resourcev1.ResourceClaim:
		if a.Operation == admission.Create {
			return requested(&o.Spec, field.NewPath("spec"))
		}
		old, _ := a.Old.(*resourcev1.ResourceClaim)
		if path := allocated(o); path != nil && (old == nil || allocated(old) == nil) {
			return path
		}
	case *resourcev1.ResourceClaimTemplate:
		if a.Operation == admission.Create {
			return requested(&o.Spec.Spec, field.NewPath("spec", "spec"))
		}
	}
	return nil
}

func requested(spec *resourcev1.ResourceClaimSpec, path *field.Path) *field.Path {
	for i := range spec.Devices.Requests {
		if r := spec.Devices.Requests[i].Exactly; r != nil && r.AdminAccess != nil && *r.AdminAccess {
			return path.Child("devices", "requests").Index(i).Child("exactly", "adminAccess")
		}
	}
	return nil
}

func allocated(c *resourcev1.ResourceClaim) *field.Path {
	if c.Status.Allocation == nil {
		return nil
	}
	for i, r := range c.Status.Allocation.Devices.Results {
		if r.AdminAccess != nil && *r.AdminAccess {
			return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
		}
	}
	return nil
}
