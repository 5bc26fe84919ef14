package volumeprotection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/scheme"
)

// AttributesFinalizer is the finalizer of VolumeAttributesClasses, as upstream names it.
const AttributesFinalizer = "kubernetes.io/vac-protection"

// AttributesClasses describes the controller of VolumeAttributesClasses: a class is in use
// while a claim or a volume names it.
func AttributesClasses() controller.Spec {
	return controller.Spec{Name: "volumeattributesclass-protection-controller", Workers: 1,
		New: func(c controller.Context) (controller.Runner, error) { return buildAttributes(c), nil }}
}

func buildAttributes(c controller.Context) controller.Runner {
	claims, volumes := informers.For[*corev1.PersistentVolumeClaim](c.Informers), informers.For[*corev1.PersistentVolume](c.Informers)
	byClaim, byVolume := informers.Index(claims, "attributes", attributesOfClaim), informers.Index(volumes, "attributes", attributesOfVolume)
	p := build(c, "volumeattributesclass_protection", AttributesFinalizer, func(ctx context.Context, class *storagev1.VolumeAttributesClass) (bool, error) {
		if len(byClaim(class.Name)) > 0 || len(byVolume(class.Name)) > 0 {
			return true, nil
		}
		// The informers may not show a new user yet.
		used, err := names(ctx, c, class.Name, attributesOfClaim)
		if used || err != nil {
			return used, err
		}
		return names(ctx, c, class.Name, attributesOfVolume)
	}, claims, volumes)
	wakeNamed(p.Loop, claims, attributesOfClaim)
	wakeNamed(p.Loop, volumes, attributesOfVolume)
	return p
}

// names reports whether any object of a kind names the class, by a list from the API.
func names[T scheme.Object](ctx context.Context, c controller.Context, class string, of func(T) []string) (bool, error) {
	list, err := client.For[T](c.Client).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(obj T) bool { return slices.Contains(of(obj), class) }), nil
}

func wakeNamed[T scheme.Object](l *loop.Loop, i *informer.Informer[T], of func(T) []string) {
	loop.WakeOn(l, i, func(obj T) (keys []loop.Key) {
		for _, name := range of(obj) {
			keys = append(keys, loop.Key{Name: name})
		}
		return keys
	})
}

// attributesOfClaim returns the classes of a claim: the wanted one, the current one and the
// one that its volume is being changed to.
func attributesOfClaim(claim *corev1.PersistentVolumeClaim) (out []string) {
	modified := ""
	if m := claim.Status.ModifyVolumeStatus; m != nil {
		modified = m.TargetVolumeAttributesClassName
	}
	for _, name := range []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName, &modified} {
		if name != nil && *name != "" && !slices.Contains(out, *name) {
			out = append(out, *name)
		}
	}
	return out
}

func attributesOfVolume(v *corev1.PersistentVolume) []string {
	if name := v.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		return []string{*name}
	}
	return nil
}
