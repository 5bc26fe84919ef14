package ownership

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Reference is the ownerReference that makes owner the controller of an object.
func Reference(owner metav1.Object, kind schema.GroupVersionKind) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind,
		Name: owner.GetName(), UID: owner.GetUID(),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// Claims is what an owner has and should have.
type Claims[T metav1.Object] struct {
	Owned   []T // named and matching
	Adopt   []T // matching and without a controller
	Release []T // named, no longer matching
}

// Claim sorts out owned (the objects that name owner as their controller) and
// orphans (those without a controller). An owner on its way out neither adopts
// nor releases, and an object on its way out is not worth either.
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

// AdoptPatch is the strategic merge patch that adds ref to the object with this uid.
func AdoptPatch(ref metav1.OwnerReference, uid types.UID) []byte {
	return mustJSON(map[string]any{"metadata": map[string]any{
		"uid": uid, "ownerReferences": []metav1.OwnerReference{ref},
	}})
}

// ReleasePatch is the strategic merge patch that takes the references to
// owners away from the object with this uid.
func ReleasePatch(uid types.UID, owners ...types.UID) []byte {
	refs := make([]map[string]any, len(owners))
	for i, o := range owners {
		refs[i] = map[string]any{"$patch": "delete", "uid": o}
	}
	return mustJSON(map[string]any{"metadata": map[string]any{"uid": uid, "ownerReferences": refs}})
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("ownership: %v", err)) // strings and maps of strings always encode
	}
	return data
}
