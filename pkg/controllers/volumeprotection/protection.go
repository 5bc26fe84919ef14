package volumeprotection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

// The finalizers, as upstream names them.
const (
	ClaimFinalizer  = "kubernetes.io/pvc-protection"
	VolumeFinalizer = "kubernetes.io/pv-protection"
)

// protection adds a finalizer to objects that lack it, and removes it from those that are
// being deleted and are not in use.
type protection[T scheme.Object] struct {
	*loop.Loop
	finalizer string
	objects   *informer.Informer[T]
	writer    controller.Writer[T]
	used      func(ctx context.Context, obj T) (bool, error)
}

func build[T scheme.Object](c controller.Context, name, finalizer string, used func(context.Context, T) (bool, error), synced ...loop.Syncer) *protection[T] {
	p := &protection[T]{finalizer: finalizer, objects: informers.For[T](c.Informers), used: used}
	p.Loop = c.NewLoop(name, 0, p.reconcile, append(synced, p.objects)...)
	p.writer = controller.NewWriter(c, p.Loop, p.objects)
	loop.WakeOn(p.Loop, p.objects, loop.Self)
	return p
}

func (p *protection[T]) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	obj, ok := p.objects.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	has, deleted := slices.Contains(obj.GetFinalizers(), p.finalizer), obj.GetDeletionTimestamp() != nil
	if has != deleted {
		return loop.Done, nil
	}
	finalizers := append(slices.Clone(obj.GetFinalizers()), p.finalizer)
	if deleted {
		if used, err := p.used(ctx, obj); used || err != nil {
			return loop.Done, err
		}
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == p.finalizer })
	}
	_, err := p.writer.Patch(ctx, key, obj, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"finalizers": finalizers, "resourceVersion": obj.GetResourceVersion(),
	}})
	return loop.Done, err
}

// Volumes describes the controller of PersistentVolumes.
func Volumes() controller.Spec {
	return controller.Spec{Name: "persistentvolume-protection-controller", Account: "pv-protection-controller", Workers: 1,
		New: func(c controller.Context) (controller.Runner, error) {
			return build(c, "pvprotection", VolumeFinalizer, func(_ context.Context, v *corev1.PersistentVolume) (bool, error) {
				return v.Status.Phase == corev1.VolumeBound, nil
			}), nil
		}}
}

// Claims describes the controller of PersistentVolumeClaims.
func Claims() controller.Spec {
	return controller.Spec{Name: "persistentvolumeclaim-protection-controller", Account: "pvc-protection-controller", Workers: 1, // livePods is for one
		New: func(c controller.Context) (controller.Runner, error) { return buildClaims(c), nil }}
}

func buildClaims(c controller.Context) controller.Runner {
	pods, live := informers.For[*corev1.Pod](c.Informers), newLivePods(client.For[*corev1.Pod](c.Client))
	users := informers.Index(pods, "claim", func(pod *corev1.Pod) (claims []string) {
		for _, name := range claimsOf(pod) {
			claims = append(claims, pod.Namespace+"/"+name)
		}
		return claims
	})
	p := build(c, "pvcprotection", ClaimFinalizer, func(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
		if slices.ContainsFunc(users(claim.Namespace+"/"+claim.Name), func(pod *corev1.Pod) bool { return uses(pod, claim) }) {
			return true, nil
		}
		// The informer may not show a new pod yet, and the data of the claim is at stake.
		return live.use(ctx, claim)
	}, pods)
	loop.WakeOn(p.Loop, pods, func(pod *corev1.Pod) (keys []loop.Key) {
		for _, name := range claimsOf(pod) {
			keys = append(keys, loop.Key{Namespace: pod.Namespace, Name: name})
		}
		return keys
	})
	return p
}

// claimsOf returns the names of the claims that a pod refers to. A pod without a node uses
// none: its kubelet does not start it with a claim that is being deleted.
func claimsOf(pod *corev1.Pod) (names []string) {
	if pod.Spec.NodeName == "" {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if name := volumebinding.ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// uses reports whether a pod uses a claim. An ephemeral volume never uses the claim of
// another pod, for example of an earlier one with the same name. Once its pod is shut down
// it does not use its own either: a pod that is deleted in the foreground waits until its
// claims are gone.
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral != nil && shutDown(pod) {
			continue
		}
		if volumebinding.ClaimName(pod, v) == claim.Name && volumebinding.CheckOwner(pod, v, claim) == nil {
			return true
		}
	}
	return false
}

// shutDown reports whether the kubelet is done with a deleted pod, or the pod was deleted by
// force: only finalizers hold it.
func shutDown(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return pod.DeletionTimestamp != nil && grace != nil && *grace == 0
}
