package ownership

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/controller"
	"podium/pkg/controller/loop"
	"podium/pkg/scheme"
)

// Adopter adopts and releases objects of type T for owners of type O. The owner's key is
// not reconciled again until the informer shows the changes.
type Adopter[O, T scheme.Object] struct {
	kind   schema.GroupVersionKind
	owners client.Resource[O]
	writer controller.Writer[T]

	// Finalizer is added to adopted objects and removed from released ones; "": none.
	Finalizer string
}

// NewAdopter returns an adopter that writes with w.
func NewAdopter[O, T scheme.Object](c controller.Context, w controller.Writer[T]) Adopter[O, T] {
	return Adopter[O, T]{kind: scheme.KindOf[O](c.Client.Scheme()).GroupVersionKind, owners: client.For[O](c.Client), writer: w}
}

// Adopt makes owner the controller of the objects. It changes nothing and returns an error
// if owner no longer exists in the API or is being deleted.
func (a Adopter[O, T]) Adopt(ctx context.Context, owner O, orphans []T) error {
	if len(orphans) == 0 {
		return nil
	}
	live, err := a.owners.In(owner.GetNamespace()).Get(ctx, owner.GetName())
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	if live.GetUID() != owner.GetUID() || live.GetDeletionTimestamp() != nil {
		return fmt.Errorf("adopt: %s is being replaced or deleted", owner.GetName())
	}
	ref := Reference(owner, a.kind)
	for _, o := range orphans {
		if err := a.patch(ctx, owner, o, a.withFinalizer("finalizers", AdoptPatch(ref))); err != nil {
			return fmt.Errorf("adopt %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// Release removes owner's reference from the objects.
func (a Adopter[O, T]) Release(ctx context.Context, owner O, objects []T) error {
	for _, o := range objects {
		err := a.patch(ctx, owner, o, a.withFinalizer("$deleteFromPrimitiveList/finalizers", ReleasePatch(owner.GetUID())))
		if err != nil && !apierrors.IsInvalid(err) { // invalid: the reference is already gone
			return fmt.Errorf("release %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// withFinalizer adds the finalizer to a directive of a strategic merge patch.
func (a Adopter[O, T]) withFinalizer(directive string, patch map[string]any) map[string]any {
	if a.Finalizer != "" {
		patch["metadata"].(map[string]any)[directive] = []string{a.Finalizer}
	}
	return patch
}

func (a Adopter[O, T]) patch(ctx context.Context, owner O, o T, patch map[string]any) error {
	_, err := a.writer.Patch(ctx, loop.KeyOf(owner), o, types.StrategicMergePatchType, patch)
	return err
}
