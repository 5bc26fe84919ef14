package scheduler

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins"
	"podium/pkg/volumebinding"
)

// volumeSources returns the informers of what the plugins of volumes read.
func (s *scheduler) volumeSources(volumes plugins.Volumes) []source {
	return []source{
		watched(s, "persistentvolumeclaims", storage(s, volumes.OnClaim)),
		watched(s, "persistentvolumes", storage(s, volumes.OnVolume)),
		watched(s, "storageclasses", storage(s, volumes.OnClass)),
		watched(s, "csidrivers", storage(s, volumes.OnDriver)),
		watched(s, "csistoragecapacities", storage(s, volumes.OnCapacity)),
		watched(s, "csinodes", storage(s, volumes.OnCSINode)),
		watched(s, "volumeattachments", func(old, new *storagev1.VolumeAttachment) {
			if volumes.OnAttachment(old, new) {
				s.queue.Wake(framework.VolumeChanged)
			}
		}),
	}
}

// storage returns a handler that retries pods after the change of a claim, a volume or a
// class.
func storage[T any](s *scheduler, next func(old, new T)) func(old, new T) {
	return waking(s, next, framework.VolumeChanged)
}

// waking returns a handler that retries the pods which wait for an event.
func waking[T any](s *scheduler, next func(old, new T), e framework.Event) func(old, new T) {
	return func(old, new T) {
		next(old, new)
		s.queue.Wake(e)
	}
}

// binder makes the writes of the plugin VolumeBinding. They fail if the object has
// changed.
type binder struct {
	claims  client.Resource[*corev1.PersistentVolumeClaim]
	volumes client.Resource[*corev1.PersistentVolume]
}

func newBinder(c *client.Client) binder {
	return binder{client.For[*corev1.PersistentVolumeClaim](c), client.For[*corev1.PersistentVolume](c)}
}

func (b binder) Reserve(ctx context.Context, v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	if volumebinding.Reserved(v, claim) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": v.ResourceVersion, "annotations": map[string]string{volumebinding.BoundByController: "yes"}},
		"spec":     map[string]any{"claimRef": volumebinding.Reference(claim)},
	})
	if err == nil {
		_, err = b.volumes.Patch(ctx, v.Name, types.MergePatchType, patch)
	}
	return err
}

func (b binder) SelectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": claim.ResourceVersion, "annotations": map[string]string{volumebinding.SelectedNode: node},
	}})
	if err == nil {
		_, err = b.claims.In(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch)
	}
	return err
}
