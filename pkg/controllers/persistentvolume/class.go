package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/controller/loop"
	"podium/pkg/defaultclass"
)

// named reports whether a claim says which class it wants; "" is an answer, too.
func named(claim *corev1.PersistentVolumeClaim) bool {
	_, beta := claim.Annotations[corev1.BetaStorageClassAnnotation]
	return beta || claim.Spec.StorageClassName != nil
}

// assignDefault gives the default class to a claim that names none: it was created when there
// was no default class. It reports whether it has changed the claim.
func (b *binder) assignDefault(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if named(claim) {
		return false, nil
	}
	class := defaultclass.Newest(b.classes.List(), defaultclass.Storage())
	if class == nil {
		return false, nil
	}
	next := claim.DeepCopy()
	next.Spec.StorageClassName = &class.Name
	_, err := b.claimWriter.Update(ctx, key, next)
	return err == nil, err
}
