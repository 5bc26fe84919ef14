package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
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
// size in the claim's status. After an error that says that the driver cannot make the
// volume so large, it waits until the controller has another size for the volume.
func (d *Driver) expand(ctx context.Context, s *service, c *volumes.Claimed, v *volume) error {
	if !grown(c) || v.readOnly || !s.calls[spec.NodeServiceCapability_RPC_EXPAND_VOLUME] {
		return nil
	}
	state := c.Claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if state == corev1.PersistentVolumeClaimNodeResizeInfeasible {
		return nil
	}
	unlock, err := d.locks.Lock(ctx, v.id())
	if err != nil {
		return err
	}
	defer unlock()
	secrets, err := d.secret(ctx, v.secrets.expand, "NodeExpandSecretRef")
	if err != nil {
		return err
	}
	claim := c.Claim
	if state != corev1.PersistentVolumeClaimNodeResizeInProgress {
		if claim, err = d.patchStatus(ctx, claim, resizeStatus(corev1.PersistentVolumeClaimNodeResizeInProgress)); err != nil {
			return err
		}
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
		return errors.Join(fmt.Errorf("NodeExpandVolume: %w", err), d.recordFailure(ctx, claim, err))
	}
	d.Events.Event(c.Pod, corev1.EventTypeNormal, "FileSystemResizeSuccessful", fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", v.Volume, d.NodeName))
	done := resizeStatus(nil)
	done["capacity"] = map[string]any{"storage": size}
	done["conditions"] = volumebinding.WithoutResize(claim.Status.Conditions)
	_, err = d.patchStatus(ctx, claim, done)
	return err
}

// resizeStatus returns the part of a claim's status with the state of its expansion; nil:
// there is none.
func resizeStatus(state any) map[string]any {
	return map[string]any{"allocatedResourceStatuses": map[string]any{"storage": state}}
}

// recordFailure records in the claim's status that the driver has refused to expand the
// volume. Of other errors the call may still succeed when it is repeated: they leave no
// record.
func (d *Driver) recordFailure(ctx context.Context, claim *corev1.PersistentVolumeClaim, failure error) error {
	status := map[string]any{}
	switch grpcstatus.Code(failure) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return nil // the driver may be expanding the volume
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		status = resizeStatus(corev1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	status["conditions"] = conditions.Set(slices.Clone(claim.Status.Conditions), corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, Message: failure.Error(),
		LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	})
	_, err := d.patchStatus(ctx, claim, status)
	return err
}

// patchStatus patches the status of a claim, unless the claim has changed, and returns the
// claim.
func (d *Driver) patchStatus(ctx context.Context, claim *corev1.PersistentVolumeClaim, status map[string]any) (*corev1.PersistentVolumeClaim, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion}, "status": status})
	if err != nil {
		return nil, err
	}
	return d.API.PatchClaimStatus(ctx, claim.Namespace, claim.Name, patch)
}
