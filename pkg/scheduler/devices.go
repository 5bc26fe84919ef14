package scheduler

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/dynamicresources"
)

// deviceSources returns the informers of what the plugin DynamicResources reads.
func (s *scheduler) deviceSources(devices *dynamicresources.Plugin) []source {
	return []source{
		watched(s, "resourceclaims", func(old, new *resourcev1.ResourceClaim) {
			if devices.OnClaim(old, new) { // most changes help no pod: the scheduler allocates claims
				s.queue.Wake(framework.DeviceChanged)
			}
		}),
		watched(s, "deviceclasses", waking(s, devices.OnClass, framework.DeviceChanged|framework.DeviceClassChanged)),
		watched(s, "resourceslices", waking(s, devices.OnSlice, framework.DeviceChanged)),
		watched(s, "devicetaintrules", waking(s, devices.OnTaintRule, framework.DeviceChanged)),
	}
}

// claimWriter makes the writes of the plugin DynamicResources.
type claimWriter struct {
	client.Resource[*resourcev1.ResourceClaim]
	pods client.Resource[*corev1.Pod]
}

func newClaimWriter(c *client.Client) claimWriter {
	return claimWriter{client.For[*resourcev1.ResourceClaim](c), client.For[*corev1.Pod](c)}
}

// Delete deletes this version of a claim.
func (w claimWriter) Delete(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	return w.In(claim.Namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}})
}

// SetExtendedClaimStatus implements dynamicresources.Writer.
func (w claimWriter) SetExtendedClaimStatus(ctx context.Context, pod *corev1.Pod, status *corev1.PodExtendedResourceClaimStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // not another pod of this name
		"status":   map[string]any{"extendedResourceClaimStatus": status},
	})
	if err == nil {
		_, err = w.pods.In(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, "status")
	}
	return err
}
