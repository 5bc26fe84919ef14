package dynamicresources

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podium/pkg/resourceclaim"
)

// plannedExtendedClaim is the claim for extended resources of a pod that is being bound.
type plannedExtendedClaim struct {
	*extendedClaim
	allocation *resourcev1.AllocationResult
	entry      *entry // of the claim; nil: it does not exist yet, and usage contains the allocation
}

// plan keeps the devices for the pod until its claim exists. The caller holds s.mu.
func (s *store) plan(pod *corev1.Pod, what *extendedClaim, a *resourcev1.AllocationResult) {
	s.usage.Add(a)
	s.extended[pod.UID] = &plannedExtendedClaim{extendedClaim: what, allocation: a}
}

// unplan gives up what no claim has been created for. The caller holds s.mu.
func (s *store) unplan(pod *corev1.Pod) {
	if now := s.extended[pod.UID]; now != nil && now.entry == nil {
		s.usage.Remove(now.allocation)
	}
	delete(s.extended, pod.UID)
}

// adopt makes the claim that has been created for the pod hold its devices.
func (s *store) adopt(pod *corev1.Pod, claim *resourcev1.ResourceClaim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	planned := s.extended[pod.UID]
	s.set(claim)
	e := s.claims[keyOf(claim)]
	if planned == nil || e == nil || e.claim.UID != claim.UID {
		return fmt.Errorf("resourceclaim %q was deleted in the meantime", claim.Name)
	}
	s.usage.Remove(planned.allocation)
	planned.entry, e.planned, e.users[pod.UID] = e, planned.allocation, true
	s.count(e, e.allocation())
	return nil
}

// leftover returns the claim that an earlier attempt has created for the pod; nil if there is none. The
// caller holds s.mu.
func (s *store) leftover(pod *corev1.Pod) *entry {
	if s.extended[pod.UID] != nil {
		return nil
	}
	return s.claims[extendedClaimName(pod)]
}

// isExtendedClaim reports whether a claim was created for the extended resources of a pod.
func isExtendedClaim(pod *corev1.Pod, claim *resourcev1.ResourceClaim) bool {
	return claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" && resourceclaim.CheckOwner(pod, claim) == nil
}

// bindExtendedClaim creates the claim for the pod's extended resources, allocates it, and tells the kubelet of
// it by the pod's status.
func (p *Plugin) bindExtendedClaim(ctx context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	planned := p.extended[pod.UID]
	p.mu.Unlock()
	var status *corev1.PodExtendedResourceClaimStatus
	if planned != nil {
		if err := p.allocateExtendedClaim(ctx, pod, planned); err != nil {
			return err
		}
		status = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: extendedClaimName(pod).Name, RequestMappings: planned.mappings}
	}
	if equality.Semantic.DeepEqual(status, pod.Status.ExtendedResourceClaimStatus) {
		return nil
	}
	if err := p.writer.SetExtendedClaimStatus(ctx, pod, status); err != nil {
		return fmt.Errorf("write the pod's status.extendedResourceClaimStatus: %w", err)
	}
	return nil
}

func (p *Plugin) allocateExtendedClaim(ctx context.Context, pod *corev1.Pod, planned *plannedExtendedClaim) error {
	if planned.entry == nil {
		claim, err := p.writer.Create(ctx, planned.claim(pod))
		if err == nil {
			err = p.adopt(pod, claim)
		}
		if err != nil { // its cause does not count: a namespace that is not found is no pod that is not found
			return errors.New("create the resourceclaim for extended resources: " + err.Error())
		}
	}
	if err := p.write(ctx, planned.entry, extendedClaimName(pod), pod); err != nil {
		return fmt.Errorf("claim %s: %w", extendedClaimName(pod).Name, err)
	}
	return nil
}

// discard frees and deletes a claim for extended resources. If that fails, the pod's next attempt does
// it again.
func (p *Plugin) discard(ctx context.Context, e *entry, claim *resourcev1.ResourceClaim) {
	if claim.Status.Allocation != nil || len(claim.Status.ReservedFor) > 0 {
		got, err := p.writer.UpdateStatus(ctx, deallocated(claim))
		if err != nil {
			return
		}
		p.mu.Lock()
		p.record(e, keyOf(got), got)
		p.mu.Unlock()
		claim = got
	}
	if claim.DeletionTimestamp == nil {
		_ = p.writer.Delete(ctx, claim)
	}
}
