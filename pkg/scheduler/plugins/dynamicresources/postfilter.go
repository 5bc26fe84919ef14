package dynamicresources

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"podium/pkg/resourceclaim"
	"podium/pkg/scheduler/framework"
)

// PostFilter frees a claim that keeps the pod from other nodes and that no other pod uses: an
// earlier attempt of the pod has allocated it, or an earlier pod. It deletes the one that an earlier
// attempt has created for extended resources.
func (p *Plugin) PostFilter(c *framework.Cycle) framework.Nomination {
	mine := func(n framework.NodeReasons) bool { return n.Plugin != nil && n.Plugin.Name() == p.Name() }
	if !mayUse(c.Pod) || !slices.ContainsFunc(c.Error.Nodes, mine) {
		return framework.Nomination{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.leftover(c.Pod.Pod); e != nil && isExtendedClaim(c.Pod.Pod, e.claim) {
		claim := e.claim
		return framework.Nomination{
			Message: "deleting ResourceClaim " + claim.Name + " of an earlier attempt.",
			Release: func(ctx context.Context) { p.discard(ctx, e, claim) },
		}
	}
	for key := range specified(c.Pod.Pod) {
		e := p.claims[key]
		if e == nil || e.claim.Status.Allocation == nil || e.claim.Status.Allocation.NodeSelector == nil || len(e.users) > 0 || !only(e.claim, c.Pod.Pod) {
			continue
		}
		claim := deallocated(e.claim)
		return framework.Nomination{
			Message: "deallocating ResourceClaim " + key.Name + ".",
			Release: func(ctx context.Context) { p.release(ctx, e, claim) },
		}
	}
	return framework.Nomination{}
}

// only reports whether no other pod has reserved the claim.
func only(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	return len(claim.Status.ReservedFor) == 0 || len(claim.Status.ReservedFor) == 1 && resourceclaim.ReservedFor(claim, pod.UID)
}

// release frees a claim. If that fails, the pod's next attempt does it again.
func (p *Plugin) release(ctx context.Context, e *entry, claim *resourcev1.ResourceClaim) {
	got, err := p.writer.UpdateStatus(ctx, claim)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(e, keyOf(got), got)
}
