package csi

import (
	"context"
	"encoding/json"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/kubelet/volumes"
	"podium/pkg/volumebinding"
)

// grown reports whether the persistent volume is larger than the claim's status says: the
// controller has expanded it, and the node has not yet.
func grown(c *volumes.Claimed) bool {
	have, ok := c.Claim.Status.Capacity[corev1.ResourceStorage]
	want := c.PV.Spec.Capacity[corev1.ResourceStorage]
	return ok && want.Cmp(have) > 0
}

// expand calls NodeExpandVolume if the persistent volume has grown, and records the new
// size in the claim's status. The caller holds the volume's lock.
func (d *Driver) expand(ctx context.Context, s *service, c *volumes.Claimed, v *volume) error {
	if !grown(c) || v.readOnly || !s.calls[spec.NodeServiceCapability_RPC_EXPAND_VOLUME] {
		return nil
	}
	secrets, err := d.secret(ctx, v.secrets.expand, "NodeExpandSecretRef")
	if err != nil {
		return err
	}
	size := c.PV.Spec.Capacity[corev1.ResourceStorage]
	req := &spec.NodeExpandVolumeRequest{
		VolumeId: v.Handle, VolumePath: v.target(d), CapacityRange: &spec.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapability: v.capability(s), Secrets: secrets,
	}
	if s.stages() {
		req.StagingTargetPath = d.stagePlace(&v.record).target
	}
	if _, err := s.NodeExpandVolume(ctx, req); err != nil {
		d.Events.Event(c.Pod, corev1.EventTypeWarning, "VolumeResizeFailed", fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", v.Volume, err))
		return fmt.Errorf("NodeExpandVolume: %w", err)
	}
	d.Events.Event(c.Pod, corev1.EventTypeNormal, "FileSystemResizeSuccessful", fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", v.Volume, d.NodeName))
	return d.recordSize(ctx, c.Claim, size)
}

// recordSize writes the size that the node has given the volume into the claim's status,
// and removes what says that it is being resized.
func (d *Driver) recordSize(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error {
	status := map[string]any{"capacity": map[string]any{"storage": size}, "conditions": volumebinding.WithoutResize(claim.Status.Conditions)}
	if _, resizing := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; resizing {
		status["allocatedResourceStatuses"] = map[string]any{"storage": nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion}, "status": status})
	if err != nil {
		return err
	}
	return d.API.PatchClaimStatus(ctx, claim.Namespace, claim.Name, patch)
}
