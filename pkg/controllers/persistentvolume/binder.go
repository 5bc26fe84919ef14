package persistentvolume

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/defaultclass"
	"podium/pkg/volumebinding"
)

// Spec describes the controller. resync is the period in which claims without a volume
// are looked at again.
func Spec(resync time.Duration) controller.Spec {
	return controller.Spec{
		Name: "persistentvolume-binder-controller", Account: "persistent-volume-binder", Component: "persistentvolume-controller", Workers: 1,
		New: func(c controller.Context) (controller.Runner, error) { return build(c, resync), nil },
	}
}

// binder reconciles claims, whose keys have a namespace, and volumes, whose keys have
// none. It has one worker: which volume a claim gets depends on all others.
type binder struct {
	*loop.Loop
	controller.Context
	resync  time.Duration
	claims  *informer.Informer[*corev1.PersistentVolumeClaim]
	volumes *informer.Informer[*corev1.PersistentVolume]
	classes *informer.Informer[*storagev1.StorageClass]

	claimsOf   func(class string) []*corev1.PersistentVolumeClaim  // that have no volume
	naming     func(volume string) []*corev1.PersistentVolumeClaim // that name a volume
	volumesOf  func(class string) []*corev1.PersistentVolume       // that no claim has
	reservedBy func(claim string) []*corev1.PersistentVolume       // by namespace/name

	claimWriter  controller.Writer[*corev1.PersistentVolumeClaim]
	volumeWriter controller.Writer[*corev1.PersistentVolume]
}

func build(c controller.Context, resync time.Duration) *binder {
	b := &binder{
		Context: c, resync: resync,
		claims:  informers.For[*corev1.PersistentVolumeClaim](c.Informers),
		volumes: informers.For[*corev1.PersistentVolume](c.Informers),
		classes: informers.For[*storagev1.StorageClass](c.Informers),
	}
	b.claimsOf = informers.Index(b.claims, "unbound", func(claim *corev1.PersistentVolumeClaim) []string {
		if volumebinding.Bound(claim) {
			return nil
		}
		return []string{volumebinding.ClassOf(claim)}
	})
	b.naming = informers.Index(b.claims, "volume", func(claim *corev1.PersistentVolumeClaim) []string {
		if claim.Spec.VolumeName == "" {
			return nil
		}
		return []string{claim.Spec.VolumeName}
	})
	b.volumesOf = informers.Index(b.volumes, "free", func(v *corev1.PersistentVolume) []string {
		if v.Spec.ClaimRef != nil {
			return nil
		}
		return []string{v.Spec.StorageClassName}
	})
	b.reservedBy = informers.Index(b.volumes, "claim", func(v *corev1.PersistentVolume) []string {
		if v.Spec.ClaimRef == nil {
			return nil
		}
		return []string{v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name}
	})
	b.Loop = c.NewLoop("persistentvolume", 0, b.reconcile, b.claims, b.volumes, b.classes)
	b.claimWriter = controller.NewWriter(c, b.Loop, b.claims)
	b.volumeWriter = controller.NewWriter(c, b.Loop, b.volumes)
	loop.WakeOn(b.Loop, b.claims, func(claim *corev1.PersistentVolumeClaim) []loop.Key {
		keys := []loop.Key{loop.KeyOf(claim)}
		if name := claim.Spec.VolumeName; name != "" {
			keys = append(keys, loop.Key{Name: name})
		}
		for _, v := range b.reservedBy(claim.Namespace + "/" + claim.Name) {
			keys = append(keys, loop.KeyOf(v))
		}
		return keys
	})
	loop.WakeOn(b.Loop, b.volumes, b.concerned)
	loop.WakeOn(b.Loop, b.classes, func(class *storagev1.StorageClass) []loop.Key {
		keys := claimKeys(b.claimsOf(class.Name))
		if defaultclass.Marked(class, defaultclass.Storage()) {
			keys = append(keys, claimKeys(b.claimsOf(""))...)
		}
		return keys
	})
	return b
}

// concerned returns the keys of a volume, of its claim and, if it is free, of the claims
// that it might satisfy or that name it: they have lost it, and it is back.
func (b *binder) concerned(v *corev1.PersistentVolume) []loop.Key {
	keys := []loop.Key{loop.KeyOf(v)}
	if ref := v.Spec.ClaimRef; ref != nil {
		return append(keys, loop.Key{Namespace: ref.Namespace, Name: ref.Name})
	}
	return slices.Concat(keys, claimKeys(b.claimsOf(v.Spec.StorageClassName)), claimKeys(b.naming(v.Name)))
}

func claimKeys(claims []*corev1.PersistentVolumeClaim) []loop.Key {
	keys := make([]loop.Key, 0, len(claims))
	for _, claim := range claims {
		keys = append(keys, loop.KeyOf(claim))
	}
	return keys
}

func (b *binder) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if key.Namespace == "" {
		return loop.Done, b.volume(ctx, key)
	}
	claim, ok := b.claims.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	if _, done := claim.Annotations[volumebinding.BindCompleted]; done {
		return loop.Done, b.bound(ctx, key, claim)
	}
	return b.unbound(ctx, key, claim)
}
