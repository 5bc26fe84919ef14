package ownership

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// Hand carries out claims for owners of kind O on objects of kind T.
type Hand[O, T scheme.Object] struct {
	Client *client.Client
	Wrote  func(owner O, resourceVersion string) // hears of each object written
}

// Adopt makes owner the controller of the objects, if it is still there and not on its way out.
func (h Hand[O, T]) Adopt(ctx context.Context, owner O, orphans []T) error {
	if len(orphans) == 0 {
		return nil
	}
	live, err := client.For[O](h.Client).In(owner.GetNamespace()).Get(ctx, owner.GetName())
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	if live.GetUID() != owner.GetUID() || live.GetDeletionTimestamp() != nil {
		return fmt.Errorf("adopt: %s is being replaced or deleted", owner.GetName())
	}
	ref := Reference(owner, scheme.KindOf[O](h.Client.Scheme()).GroupVersionKind)
	for _, o := range orphans {
		if err := h.patch(ctx, owner, o, AdoptPatch(ref, o.GetUID())); err != nil {
			return fmt.Errorf("adopt %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// Release takes owner's reference away from the objects.
func (h Hand[O, T]) Release(ctx context.Context, owner O, strangers []T) error {
	for _, o := range strangers {
		err := h.patch(ctx, owner, o, ReleasePatch(o.GetUID(), owner.GetUID()))
		if err != nil && !apierrors.IsInvalid(err) { // invalid: there is no such reference any more
			return fmt.Errorf("release %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// patch changes one object; one that is gone, or replaced by a namesake, is no concern of owner's.
func (h Hand[O, T]) patch(ctx context.Context, owner O, o T, patch []byte) error {
	got, err := client.For[T](h.Client).In(o.GetNamespace()).Patch(ctx, o.GetName(), types.StrategicMergePatchType, patch)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		h.Wrote(owner, got.GetResourceVersion())
	}
	return err
}
