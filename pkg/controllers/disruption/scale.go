package disruption

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"podium/pkg/client/discovery"
	"podium/pkg/client/informer"
	"podium/pkg/client/scales"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/scheme"
)

// wanted finds out how many pods the controllers of pods want.
type wanted struct {
	any         *scales.Client
	deployments *informer.Informer[*appsv1.Deployment]
	replicaSets *informer.Informer[*appsv1.ReplicaSet]
	controllers *informer.Informer[*corev1.ReplicationController]
	stateful    *informer.Informer[*appsv1.StatefulSet]
}

func newWanted(c controller.Context) *wanted {
	return &wanted{
		any:         scales.New(c.Client, discovery.NewResolver(discovery.New(c.Client))),
		deployments: informers.For[*appsv1.Deployment](c.Informers),
		replicaSets: informers.For[*appsv1.ReplicaSet](c.Informers),
		controllers: informers.For[*corev1.ReplicationController](c.Informers),
		stateful:    informers.For[*appsv1.StatefulSet](c.Informers),
	}
}

func (s *wanted) syncers() []loop.Syncer {
	return []loop.Syncer{s.deployments, s.replicaSets, s.controllers, s.stateful}
}

// onChange registers f to be called with the namespace of each controller whose scale has
// changed.
func (s *wanted) onChange(f func(namespace string)) {
	onScale(s.deployments, f, func(d *appsv1.Deployment) *int32 { return d.Spec.Replicas })
	onScale(s.replicaSets, f, func(rs *appsv1.ReplicaSet) *int32 { return rs.Spec.Replicas })
	onScale(s.controllers, f, func(rc *corev1.ReplicationController) *int32 { return rc.Spec.Replicas })
	onScale(s.stateful, f, func(ss *appsv1.StatefulSet) *int32 { return ss.Spec.Replicas })
}

func onScale[T scheme.Object](i *informer.Informer[T], f func(string), replicas func(T) *int32) {
	var none T
	i.OnChange(func(old, new T) {
		if any(old) != any(none) && any(new) != any(none) && !ptr.Equal(replicas(old), replicas(new)) {
			f(new.GetNamespace())
		}
	})
}

// scale is the number of pods that a controller wants.
type scale struct {
	controller types.UID
	replicas   int32
}

// total returns the sum of the scales of all controllers of the pods, and the names of the
// pods that have none.
func (s *wanted) total(ctx context.Context, pods []*corev1.Pod) (sum int32, unmanaged []string, err error) {
	found := map[types.UID]scale{} // by the UID of the pods' owner
	counted := map[types.UID]bool{}
	for _, p := range pods {
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			unmanaged = append(unmanaged, p.Name)
			continue
		}
		if _, known := found[ref.UID]; known {
			continue
		}
		of, err := s.of(ctx, p.Namespace, ref)
		if err != nil {
			return 0, nil, err
		}
		if of == nil {
			return 0, nil, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		found[ref.UID] = *of
		if !counted[of.controller] {
			counted[of.controller] = true
			sum += of.replicas
		}
	}
	return sum, unmanaged, nil
}

// of returns the scale of an owner of pods or, for a ReplicaSet of a Deployment, that of the
// Deployment. It returns nil if the owner does not exist.
func (s *wanted) of(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*scale, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	if found := s.cached(namespace, schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, ref); found != nil {
		return found, nil
	}
	return s.live(ctx, namespace, gv.WithKind(ref.Kind), ref)
}

func (s *wanted) cached(namespace string, kind schema.GroupKind, ref *metav1.OwnerReference) *scale {
	switch kind {
	case schema.GroupKind{Kind: "ReplicationController"}:
		if rc, ok := find(s.controllers, namespace, ref); ok {
			return &scale{rc.UID, *rc.Spec.Replicas}
		}
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		if ss, ok := find(s.stateful, namespace, ref); ok {
			return &scale{ss.UID, *ss.Spec.Replicas}
		}
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}:
		rs, ok := find(s.replicaSets, namespace, ref)
		if !ok {
			return nil
		}
		owner := metav1.GetControllerOfNoCopy(rs)
		if owner == nil || owner.Kind != "Deployment" {
			return &scale{rs.UID, *rs.Spec.Replicas}
		}
		if d, ok := find(s.deployments, namespace, owner); ok {
			return &scale{d.UID, *d.Spec.Replicas}
		}
	}
	return nil
}

func find[T scheme.Object](i *informer.Informer[T], namespace string, ref *metav1.OwnerReference) (T, bool) {
	obj, ok := i.Get(namespace, ref.Name)
	return obj, ok && obj.GetUID() == ref.UID
}

// live reads the scale subresource of an owner of any kind.
func (s *wanted) live(ctx context.Context, namespace string, kind schema.GroupVersionKind, ref *metav1.OwnerReference) (*scale, error) {
	got, err := s.any.Get(ctx, namespace, kind, ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get the scale of %s %s: %w", kind.Kind, ref.Name, err)
	}
	if got.UID != ref.UID {
		return nil, nil
	}
	return &scale{got.UID, got.Spec.Replicas}, nil
}
