package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/controller/loop"
)

// named reports whether a claim says which class it wants; "" is an answer, too.
func named(claim *corev1.PersistentVolumeClaim) bool {
	_, beta := claim.Annotations[corev1.BetaStorageClassAnnotation]
	return beta || claim.Spec.StorageClassName != nil
}

// isDefault reports whether a class is marked as the default.
func isDefault(class *storagev1.StorageClass) bool {
	return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
		class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// defaultClass returns the newest class that is marked as the default, the first by name
// among those of the same second; nil if there is none.
func defaultClass(classes []*storagev1.StorageClass) (found *storagev1.StorageClass) {
	for _, class := range classes {
		if isDefault(class) && (found == nil || preferred(class, found)) {
			found = class
		}
	}
	return found
}

func preferred(a, b *storagev1.StorageClass) bool {
	if at, bt := a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix(); at != bt {
		return at > bt
	}
	return a.Name < b.Name
}

// assignDefault gives the default class to a claim that names none: it was created when there
// was no default class. It reports whether it has changed the claim.
func (b *binder) assignDefault(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if named(claim) {
		return false, nil
	}
	class := defaultClass(b.classes.List())
	if class == nil {
		return false, nil
	}
	next := claim.DeepCopy()
	next.Spec.StorageClassName = &class.Name
	_, err := b.claimWriter.Update(ctx, key, next)
	return err == nil, err
}
