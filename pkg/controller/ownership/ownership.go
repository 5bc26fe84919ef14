package ownership

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Reference returns the owner reference that makes owner the controller of an
// object.
func Reference(owner metav1.Object, kind schema.GroupVersionKind) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind,
		Name: owner.GetName(), UID: owner.GetUID(),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// Claims are the objects that an owner has, and the changes to make.
type Claims[T metav1.Object] struct {
	Owned   []T // named and matching
	Adopt   []T // matching and without a controller
	Release []T // named, no longer matching
}

// Claim sorts owned (the objects whose controller is owner) and orphans (those
// without a controller). An owner that is being deleted neither adopts nor
// releases, and an object that is being deleted is neither adopted nor released.
func Claim[T metav1.Object](owner metav1.Object, selector labels.Selector, owned, orphans []T) Claims[T] {
	var c Claims[T]
	for _, o := range owned {
		switch {
		case selector.Matches(labels.Set(o.GetLabels())):
			c.Owned = append(c.Owned, o)
		case owner.GetDeletionTimestamp() == nil && o.GetDeletionTimestamp() == nil:
			c.Release = append(c.Release, o)
		}
	}
	if owner.GetDeletionTimestamp() != nil {
		return c
	}
	for _, o := range orphans {
		if o.GetNamespace() == owner.GetNamespace() && o.GetDeletionTimestamp() == nil &&
			metav1.GetControllerOfNoCopy(o) == nil && selector.Matches(labels.Set(o.GetLabels())) {
			c.Adopt = append(c.Adopt, o)
		}
	}
	return c
}

// AdoptPatch returns the strategic merge patch that adds an owner reference.
func AdoptPatch(ref metav1.OwnerReference) map[string]any {
	return map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{ref}}}
}

// ReleasePatch returns the strategic merge patch that removes the references to
// owners.
func ReleasePatch(owners ...types.UID) map[string]any {
	refs := make([]map[string]any, len(owners))
	for i, o := range owners {
		refs[i] = map[string]any{"$patch": "delete", "uid": o}
	}
	return map[string]any{"metadata": map[string]any{"ownerReferences": refs}}
}
