package dynamicresources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/resourceclaim"
	"podium/pkg/scheduler/snapshot"
)

// Writer makes the writes that allocate a claim. They fail if the claim, or the pod, has changed.
type Writer interface {
	Create(ctx context.Context, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)
	Update(ctx context.Context, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)
	UpdateStatus(ctx context.Context, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)
	Delete(ctx context.Context, claim *resourcev1.ResourceClaim) error
	// SetExtendedClaimStatus writes the pod's status.extendedResourceClaimStatus.
	SetExtendedClaimStatus(ctx context.Context, pod *corev1.Pod, status *corev1.PodExtendedResourceClaimStatus) error
}

// Reserve plans the allocation of the pod's claims. Pods that are scheduled after this one do
// not get the devices; those that share a claim get the same ones.
func (p *Plugin) Reserve(pod *snapshot.Pod, name string) error {
	if !mayUse(pod) {
		return nil
	}
	node := p.node(name)
	if node == nil {
		return fmt.Errorf("node %q not found", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	needs := p.needs(pod.Pod)
	f := p.filter(needs, p.requests(pod))
	v := f.variant(node)
	allocations, status := f.place(node, v)
	if status != nil {
		return errors.New(status.Reasons[0])
	}
	for _, n := range needs {
		n.entry.users[pod.UID] = true
		if !n.Allocated {
			n.entry.planned, allocations = allocations[0], allocations[1:]
			p.count(n.entry, n.entry.planned)
		}
	}
	if v.extended != nil {
		p.plan(pod.Pod, v.extended, allocations[0])
	}
	return nil
}

// Unreserve gives up what is planned for the pod. A claim whose allocation has been written
// stays allocated and reserved: the pod uses it in its next attempt, or the plugin frees it
// then.
func (p *Plugin) Unreserve(pod *snapshot.Pod, _ string) { p.forget(pod) }

// PostBind forgets the plan: the claims are reserved.
func (p *Plugin) PostBind(_ context.Context, pod *snapshot.Pod, _ string) { p.forget(pod) }

func (s *store) forget(pod *snapshot.Pod) {
	if !mayUse(pod) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unplan(pod.Pod)
	for key := range namesOf(pod.Pod) {
		e := s.claims[key]
		if e == nil || !e.users[pod.UID] {
			continue
		}
		delete(e.users, pod.UID)
		if len(e.users) == 0 {
			e.planned = nil
			s.count(e, e.allocation())
		}
	}
}

// namesOf yields the claims of a pod that have names, and the one for extended resources, which does
// not exist for most pods.
func namesOf(pod *corev1.Pod) func(yield func(types.NamespacedName) bool) {
	return func(yield func(types.NamespacedName) bool) {
		for key := range specified(pod) {
			if !yield(key) {
				return
			}
		}
		yield(extendedClaimName(pod))
	}
}

// specified yields the claims of spec.resourceClaims that have names.
func specified(pod *corev1.Pod) func(yield func(types.NamespacedName) bool) {
	return func(yield func(types.NamespacedName) bool) {
		for i := range pod.Spec.ResourceClaims {
			name, _ := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
			if name != "" && !yield(types.NamespacedName{Namespace: pod.Namespace, Name: name}) {
				return
			}
		}
	}
}

// PreBind writes the allocations and reserves the claims for the pod, which may have to wait for
// its devices then.
func (p *Plugin) PreBind(ctx context.Context, pod *snapshot.Pod, _ string) error {
	if !mayUse(pod) {
		return nil
	}
	if b := p.binding(pod.Pod, time.Now()); b.failed != nil { // as another pod with the claim has found out
		return p.giveUp(ctx, pod.Pod, b.failed)
	}
	for key := range specified(pod.Pod) {
		p.mu.Lock()
		e := p.claims[key]
		p.mu.Unlock()
		if e == nil {
			return fmt.Errorf("resourceclaim %q not found", key.Name)
		}
		if err := p.write(ctx, e, key, pod.Pod); err != nil {
			return fmt.Errorf("claim %s: %w", key.Name, err)
		}
	}
	if err := p.bindExtendedClaim(ctx, pod.Pod); err != nil {
		return err
	}
	return p.awaitDevices(pod)
}

// write reserves a claim for the pod, and allocates it. Pods that share the claim take turns.
// It does not return before it knows what became of each request: a device whose allocation
// may have been written must not be planned for another claim.
func (p *Plugin) write(ctx context.Context, e *entry, key types.NamespacedName, pod *corev1.Pod) error {
	select {
	case e.writing <- struct{}{}:
		defer func() { <-e.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	retry := backoff.Backoff{Initial: 200 * time.Millisecond, Max: 5 * time.Second}
	for {
		now, next, update, changed, err := p.next(e, key, pod)
		if err != nil || next == nil {
			return err
		}
		got, err := update(ctx, next)
		switch {
		case err == nil:
			p.mu.Lock()
			p.record(e, key, got)
			p.mu.Unlock()
		case apierrors.IsConflict(err):
			err = p.awaitNewer(ctx, key, now, changed)
		case definite(err):
			return err
		default:
			err = retry.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// definite reports whether the server has decided on a request.
func definite(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && status.ErrStatus.Code < 500
}

// record stores a version of a claim that the scheduler has written, unless the claim is gone.
func (s *store) record(e *entry, key types.NamespacedName, claim *resourcev1.ResourceClaim) {
	if s.claims[key] == e {
		s.set(claim)
	}
}

type update = func(context.Context, *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)

// next returns the next write for a claim, nil if nothing is left to write. now is the version
// that it is based on; changed is closed when there is a later one.
func (p *Plugin) next(e *entry, key types.NamespacedName, pod *corev1.Pod) (now, next *resourcev1.ResourceClaim, write update, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, changed = e.claim, p.changed
	reserved, allocated := resourceclaim.ReservedFor(now, pod.UID), now.Status.Allocation != nil
	switch {
	case p.claims[key] != e:
		return nil, nil, nil, nil, errors.New("the claim was deleted in the meantime")
	case allocated && reserved:
		return now, nil, nil, changed, nil
	case now.DeletionTimestamp != nil:
		return nil, nil, nil, nil, errors.New("the claim is being deleted")
	case !allocated && e.planned == nil:
		return nil, nil, nil, nil, errors.New("the claim was deallocated in the meantime")
	case resourceclaim.Full(now):
		return nil, nil, nil, nil, errors.New(inUse)
	}
	next = now.DeepCopy()
	if !allocated && !slices.Contains(now.Finalizers, resourcev1.Finalizer) {
		next.Finalizers = append(next.Finalizers, resourcev1.Finalizer)
		return now, next, p.writer.Update, changed, nil
	}
	if !allocated {
		next.Status.Allocation = e.planned
	}
	next.Status.ReservedFor = append(next.Status.ReservedFor, resourceclaim.Reference(pod))
	return now, next, p.writer.UpdateStatus, changed, nil
}

// conflictPatience is how long a write that conflicts waits for the cache before it is tried again.
// What refuses a write for another reason than its version may call that a conflict, too.
const conflictPatience = 5 * time.Second

// awaitNewer blocks until the cache shows a claim that is newer than now, or that it is gone, but no
// longer than conflictPatience.
func (p *Plugin) awaitNewer(ctx context.Context, key types.NamespacedName, now *resourcev1.ResourceClaim, changed <-chan struct{}) error {
	late := time.NewTimer(conflictPatience)
	defer late.Stop()
	for {
		p.mu.Lock()
		e := p.claims[key]
		later := e == nil || e.claim.UID != now.UID || newer(e.claim, now)
		if !later {
			changed = p.changed
		}
		p.mu.Unlock()
		if later {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
