package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/controller/loop"
	"podium/pkg/volumebinding"
)

// volume reconciles a volume: its phase, and what becomes of it when its claim is gone.
func (b *binder) volume(ctx context.Context, key loop.Key) error {
	v, ok := b.volumes.Get("", key.Name)
	if !ok {
		return nil
	}
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" { // free, or reserved for a claim that is not bound to it
		return b.volumePhase(ctx, key, v, corev1.VolumeAvailable, "")
	}
	claim, err := b.claimOf(ctx, ref)
	switch {
	case err != nil:
		return err
	case claim == nil:
		return b.released(ctx, key, v)
	case claim.Spec.VolumeName == v.Name:
		return b.volumePhase(ctx, key, v, corev1.VolumeBound, "")
	case claim.Spec.VolumeName == "":
		b.Wake(loop.KeyOf(claim)) // the binding continues with the claim
		return nil
	}
	return b.misbound(ctx, key, v)
}

// claimOf returns the claim that a volume refers to; nil if it is gone. The API is asked
// before a claim counts as gone: the data of the volume depends on it.
func (b *binder) claimOf(ctx context.Context, ref *corev1.ObjectReference) (*corev1.PersistentVolumeClaim, error) {
	if claim, ok := b.claims.Get(ref.Namespace, ref.Name); ok && claim.UID == ref.UID {
		return claim, nil
	}
	claim, err := b.claimWriter.Get(ctx, ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) || err == nil && claim.UID != ref.UID {
		return nil, nil
	}
	return claim, err
}

// released applies the reclaim policy of a volume whose claim is gone.
func (b *binder) released(ctx context.Context, key loop.Key, v *corev1.PersistentVolume) error {
	if v.Status.Phase == corev1.VolumeFailed {
		return nil
	}
	reason, message := "", ""
	switch policy := v.Spec.PersistentVolumeReclaimPolicy; {
	case policy == corev1.PersistentVolumeReclaimDelete && v.Annotations[volumebinding.ProvisionedBy] == "":
		reason, message = "VolumeFailedDelete", "error getting deleter volume plugin for volume \""+v.Name+"\": no deletable volume plugin matched"
	case policy == corev1.PersistentVolumeReclaimRecycle:
		reason, message = "VolumeFailedRecycle", "no recyclable volume plugin matched"
	}
	if reason == "" {
		return b.volumePhase(ctx, key, v, corev1.VolumeReleased, "")
	}
	b.Events.Event(v, corev1.EventTypeWarning, reason, message)
	return b.volumePhase(ctx, key, v, corev1.VolumeFailed, message)
}

// misbound frees a volume whose claim is bound to another one. A volume that was
// provisioned for the claim is released: its provisioner deletes it.
func (b *binder) misbound(ctx context.Context, key loop.Key, v *corev1.PersistentVolume) error {
	if v.Annotations[volumebinding.ProvisionedBy] != "" && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return b.volumePhase(ctx, key, v, corev1.VolumeReleased, "")
	}
	next := v.DeepCopy()
	if _, ours := v.Annotations[volumebinding.BoundByController]; ours {
		next.Spec.ClaimRef = nil
		delete(next.Annotations, volumebinding.BoundByController)
	} else {
		next.Spec.ClaimRef.UID, next.Spec.ClaimRef.ResourceVersion = "", ""
	}
	got, err := b.volumeWriter.Update(ctx, key, next)
	if err != nil || got == nil {
		return err
	}
	return b.volumePhase(ctx, key, got, corev1.VolumeAvailable, "")
}

func (b *binder) volumePhase(ctx context.Context, key loop.Key, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) error {
	if v.Status.Phase == phase {
		return nil
	}
	next := v.DeepCopy()
	next.Status.Phase, next.Status.Message = phase, message
	_, err := b.volumeWriter.UpdateStatus(ctx, key, next)
	return err
}
