package persistentvolume

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controller/loop"
	"podium/pkg/volumebinding"
)

// unbound reconciles a claim whose binding is not completed.
func (b *binder) unbound(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim) (loop.Result, error) {
	if name := claim.Spec.VolumeName; name != "" {
		return loop.Done, b.requested(ctx, key, claim, name)
	}
	if claim.DeletionTimestamp != nil {
		return loop.Done, nil
	}
	class := volumebinding.ClassOf(claim)
	reserved := b.reservedBy(claim.Namespace + "/" + claim.Name)
	delayed := b.delayed(claim)
	candidates := reserved
	if !delayed {
		candidates = slices.Concat(reserved, b.volumesOf(class))
	}
	if v := match(claim, candidates); v != nil {
		if why := volumebinding.Mismatch(v, claim); why != "" {
			b.Events.Eventf(claim, corev1.EventTypeWarning, "VolumeMismatch", "Cannot bind to requested volume %q: %s", v.Name, why)
			return loop.After(b.resync), b.phase(ctx, key, claim, corev1.ClaimPending)
		}
		return loop.Done, b.bind(ctx, key, claim, v)
	}
	if assigned, err := b.assignDefault(ctx, key, claim); assigned || err != nil {
		return loop.Done, err
	}
	switch {
	case delayed:
		b.Events.Event(claim, corev1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case class != "":
		if err := b.provision(ctx, key, claim, class); err != nil {
			return loop.Done, err
		}
	default:
		b.Events.Event(claim, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	}
	return loop.After(b.resync), b.phase(ctx, key, claim, corev1.ClaimPending)
}

// delayed reports whether a claim waits for its first pod.
func (b *binder) delayed(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Annotations[volumebinding.SelectedNode] != "" {
		return false
	}
	class, _ := b.classes.Get("", volumebinding.ClassOf(claim))
	return volumebinding.Delayed(class)
}

// provision asks the provisioner of a claim's class for a volume.
func (b *binder) provision(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim, name string) error {
	class, ok := b.classes.Get("", name)
	if !ok {
		b.Events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "storageclass.storage.k8s.io %q not found", name)
		return nil
	}
	provisioner := class.Provisioner
	if provisioner == volumebinding.NoProvisioner {
		b.Events.Event(claim, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
		return nil
	}
	b.Events.Eventf(claim, corev1.EventTypeNormal, "ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.", provisioner)
	if claim.Annotations[volumebinding.Provisioner] == provisioner && claim.Annotations[volumebinding.BetaProvisioner] == provisioner {
		return nil
	}
	_, err := b.claimWriter.Patch(ctx, key, claim, types.StrategicMergePatchType, map[string]any{"metadata": map[string]any{
		"resourceVersion": claim.ResourceVersion,
		"annotations":     map[string]string{volumebinding.Provisioner: provisioner, volumebinding.BetaProvisioner: provisioner},
	}})
	return err
}

// requested reconciles a claim that names its volume but is not bound to it yet.
func (b *binder) requested(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim, name string) error {
	v, ok := b.volumes.Get("", name)
	switch {
	case !ok:
		return b.phase(ctx, key, claim, corev1.ClaimPending)
	case v.Spec.ClaimRef == nil:
		if why := volumebinding.Mismatch(v, claim); why != "" {
			b.Events.Eventf(claim, corev1.EventTypeWarning, "VolumeMismatch", "Cannot bind to requested volume %q: %s", name, why)
			return b.phase(ctx, key, claim, corev1.ClaimPending)
		}
		return b.bind(ctx, key, claim, v)
	case volumebinding.Reserved(v, claim):
		return b.bind(ctx, key, claim, v)
	}
	b.Events.Eventf(claim, corev1.EventTypeWarning, "FailedBinding", "volume %q already bound to a different claim.", name)
	return b.phase(ctx, key, claim, corev1.ClaimPending)
}

// bound reconciles a claim whose binding was completed once.
func (b *binder) bound(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName == "" {
		return b.lost(ctx, key, claim, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v, ok := b.volumes.Get("", claim.Spec.VolumeName)
	switch {
	case !ok:
		return b.lost(ctx, key, claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || volumebinding.Reserved(v, claim):
		return b.bind(ctx, key, claim, v)
	}
	return b.lost(ctx, key, claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

func (b *binder) lost(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim, reason, message string) error {
	if claim.Status.Phase != corev1.ClaimLost {
		b.Events.Event(claim, corev1.EventTypeWarning, reason, message)
	}
	return b.phase(ctx, key, claim, corev1.ClaimLost)
}

// phase sets the phase of a claim that has no volume: there is neither capacity nor access.
func (b *binder) phase(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) error {
	next := claim.DeepCopy()
	next.Status.Phase, next.Status.Capacity, next.Status.AccessModes = phase, nil, nil
	if apiequality.Semantic.DeepEqual(next.Status, claim.Status) {
		return nil
	}
	_, err := b.claimWriter.UpdateStatus(ctx, key, next)
	return err
}

// bind makes the writes of a binding that are missing: the reference of the volume first,
// which reserves it.
func (b *binder) bind(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	if reserved := reserve(v, claim); !apiequality.Semantic.DeepEqual(reserved, v) {
		got, err := b.volumeWriter.Update(ctx, key, reserved)
		if err != nil || got == nil {
			return err
		}
		v = got
	}
	if err := b.volumePhase(ctx, key, v, corev1.VolumeBound, ""); err != nil {
		return err
	}
	if complete := completed(claim, v); !apiequality.Semantic.DeepEqual(complete, claim) {
		got, err := b.claimWriter.Update(ctx, key, complete)
		if err != nil || got == nil {
			return err
		}
		claim = got
	}
	next := claim.DeepCopy()
	next.Status.Phase = corev1.ClaimBound
	next.Status.AccessModes = v.Spec.AccessModes
	if claim.Status.Phase != corev1.ClaimBound { // later only an expansion changes it
		next.Status.Capacity = v.Spec.Capacity.DeepCopy()
		next.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	if apiequality.Semantic.DeepEqual(next.Status, claim.Status) {
		return nil
	}
	_, err := b.claimWriter.UpdateStatus(ctx, key, next)
	return err
}

// reserve returns a copy of a volume that refers to the claim.
func reserve(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	next := v.DeepCopy()
	if v.Spec.ClaimRef == nil {
		next.Annotations = with(v.Annotations, volumebinding.BoundByController)
	}
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		next.Spec.ClaimRef = volumebinding.Reference(claim)
	}
	return next
}

// completed returns a copy of a claim that names the volume.
func completed(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	next := claim.DeepCopy()
	if claim.Spec.VolumeName == "" {
		next.Spec.VolumeName = v.Name
		next.Annotations = with(next.Annotations, volumebinding.BoundByController)
	}
	next.Annotations = with(next.Annotations, volumebinding.BindCompleted)
	return next
}

// with returns a copy of annotations with one that is "yes".
func with(annotations map[string]string, name string) map[string]string {
	out := maps.Clone(annotations)
	if out == nil {
		out = map[string]string{}
	}
	out[name] = "yes"
	return out
}
