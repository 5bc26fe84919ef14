package resourceclaim

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controller/loop"
	"podium/pkg/resourceclaim"
)

// reconcileClaim frees a claim that no pod uses any more.
func (r *reconciler) reconcileClaim(ctx context.Context, key loop.Key) (loop.Result, error) {
	claim, ok := r.claims.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	consumers, err := r.consumers(ctx, claim)
	if err != nil {
		return loop.Done, err
	}
	todo := decide(claim, consumers)
	if todo.Status != nil {
		got, err := r.claimWriter.UpdateStatus(ctx, key, todo.Status)
		if err != nil || got == nil {
			return loop.Done, err
		}
		claim = got
	}
	if todo.Release {
		if err := r.release(ctx, key, claim); err != nil {
			return loop.Done, err
		}
	}
	if claim.DeletionTimestamp != nil || len(consumers) > 0 || !r.unneeded(claim) {
		return loop.Done, nil
	}
	_, err = r.claimWriter.Delete(ctx, key, claim, metav1.DeleteOptions{})
	return loop.Done, err
}

// consumers returns the entries of status.reservedFor that are still valid. A pod that the
// cache does not show may be newer than the cache: the API decides.
func (r *reconciler) consumers(ctx context.Context, claim *resourcev1.ResourceClaim) ([]resourcev1.ResourceClaimConsumerReference, error) {
	var valid []resourcev1.ResourceClaimConsumerReference
	for _, c := range claim.Status.ReservedFor {
		if !resourceclaim.OfPod(c) {
			valid = append(valid, c) // of another component, which removes it
			continue
		}
		pod, ok := r.pods.Get(claim.Namespace, c.Name)
		if !ok || pod.UID != c.UID {
			var err error
			pod, err = r.live.In(claim.Namespace).Get(ctx, c.Name)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("look for pod %s: %w", c.Name, err)
			}
		}
		if pod.UID == c.UID && !done(pod) {
			valid = append(valid, c)
		}
	}
	return valid, nil
}

// plan is what to do with a claim.
type plan struct {
	Status  *resourcev1.ResourceClaim // the claim with the status to write; nil: none
	Release bool                      // remove the finalizer
}

// decide returns how a claim changes that has only these consumers. A claim loses its
// allocation together with its last consumer, in one write; also when it is to be deleted.
func decide(claim *resourcev1.ResourceClaim, consumers []resourcev1.ResourceClaimConsumerReference) plan {
	ended := len(consumers) == 0 && (len(claim.Status.ReservedFor) > 0 || claim.DeletionTimestamp != nil)
	deallocate := ended && protected(claim) && claim.Status.Allocation != nil
	var p plan
	if len(consumers) < len(claim.Status.ReservedFor) || deallocate {
		p.Status = claim.DeepCopy()
		p.Status.Status.ReservedFor = consumers
		if deallocate {
			p.Status.Status.Allocation, p.Status.Status.Devices = nil, nil
		}
	}
	p.Release = ended && protected(claim)
	return p
}

// protected reports whether the scheduler has allocated the claim, or is about to.
func protected(claim *resourcev1.ResourceClaim) bool {
	return slices.Contains(claim.Finalizers, resourcev1.Finalizer)
}

// release removes the finalizer of a claim that has no allocation.
func (r *reconciler) release(ctx context.Context, key loop.Key, claim *resourcev1.ResourceClaim) error {
	claim = claim.DeepCopy()
	claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
	_, err := r.claimWriter.Update(ctx, key, claim)
	return err
}

// unneeded reports whether a claim that no pod has reserved was made for a pod which will
// not use it. The garbage collector deletes the claims of pods that the cache does not show.
func (r *reconciler) unneeded(claim *resourcev1.ResourceClaim) bool {
	ref := owner(claim)
	if ref == nil {
		return false
	}
	pod, ok := r.pods.Get(claim.Namespace, ref.Name)
	if !ok || pod.UID != ref.UID {
		return false
	}
	return done(pod) || surplus(pod, claim, func(name string) *resourcev1.ResourceClaim {
		other, _ := r.claims.Get(pod.Namespace, name)
		return other
	})
}
