package dynamicresources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// bindingTimeout is how long after their allocation devices may take to be ready for a pod, as
// upstream.
const bindingTimeout = 10 * time.Minute

// binding is how far the devices of a pod's claims are.
type binding struct {
	waits  bool      // for conditions of devices
	until  time.Time // when it has waited long enough
	failed error     // it waits in vain
}

// awaitDevices returns a LaterError if the pod has to wait for its devices.
func (p *Plugin) awaitDevices(pod *snapshot.Pod) error {
	if b := p.binding(pod.Pod, time.Now()); b.failed == nil && !b.waits {
		return nil
	}
	return &framework.LaterError{Await: func(ctx context.Context) error { return p.await(ctx, pod.Pod) }}
}

// await blocks until all conditions of the pod's devices are true. If one says that they will
// not be, or after a time, it gives the devices back: the pod may get others.
func (p *Plugin) await(ctx context.Context, pod *corev1.Pod) error {
	for began := time.Now(); ; {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		b := p.binding(pod, began)
		switch {
		case b.failed != nil:
			return p.giveUp(ctx, pod, b.failed)
		case !b.waits:
			return nil
		}
		late := time.NewTimer(time.Until(b.until))
		select {
		case <-changed:
		case <-late.C:
		case <-ctx.Done():
		}
		late.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// binding looks at all devices that the pod's claims have. began is when the pod began to wait, for
// claims that do not say when they were allocated.
func (p *Plugin) binding(pod *corev1.Pod, began time.Time) (b binding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range namesOf(pod) {
		e := p.claims[key]
		if e == nil || e.claim.Status.Allocation == nil {
			continue
		}
		waits, failed := claimBinding(e.claim)
		if failed != "" {
			return binding{failed: fmt.Errorf("claim %s: %s", key.Name, failed)}
		}
		if !waits {
			continue
		}
		until := began.Add(bindingTimeout)
		if at := e.claim.Status.Allocation.AllocationTimestamp; at != nil {
			until = at.Add(bindingTimeout)
		}
		if !b.waits || until.Before(b.until) {
			b = binding{waits: true, until: until}
		}
	}
	if b.waits && time.Until(b.until) <= 0 {
		b.failed = fmt.Errorf("devices were not ready within %s", bindingTimeout)
	}
	return b
}

// claimBinding is deviceBinding of all devices of a claim.
func claimBinding(claim *resourcev1.ResourceClaim) (waits bool, failed string) {
	for i := range claim.Status.Allocation.Devices.Results {
		one, failed := deviceBinding(claim, &claim.Status.Allocation.Devices.Results[i])
		if failed != "" {
			return true, failed
		}
		waits = waits || one
	}
	return waits, ""
}

// deviceBinding reports whether a device has conditions that are not true yet, and why it will
// not be ready.
func deviceBinding(claim *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) (waits bool, failed string) {
	status := statusOf(claim, r)
	if status == nil {
		return len(r.BindingConditions) > 0, ""
	}
	for _, kind := range r.BindingFailureConditions {
		if meta.IsStatusConditionTrue(status.Conditions, kind) {
			c := meta.FindStatusCondition(status.Conditions, kind)
			return true, fmt.Sprintf("device %s/%s/%s: %s: %s", r.Driver, r.Pool, r.Device, kind, c.Message)
		}
	}
	return len(missing(status, r)) > 0, ""
}

// missing returns the binding conditions of a device that are not true. A status of nil has none.
func missing(status *resourcev1.AllocatedDeviceStatus, r *resourcev1.DeviceRequestAllocationResult) (out []string) {
	for _, kind := range r.BindingConditions {
		if status == nil || !meta.IsStatusConditionTrue(status.Conditions, kind) {
			out = append(out, kind)
		}
	}
	return out
}

// Awaited returns the binding conditions of a claim's devices that are not true:
// "DRIVER/POOL/DEVICE: TYPE[, TYPE]" for each of these devices.
func Awaited(claim *resourcev1.ResourceClaim) (out []string) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if kinds := missing(statusOf(claim, r), r); len(kinds) > 0 {
			out = append(out, fmt.Sprintf("%s/%s/%s: %s", r.Driver, r.Pool, r.Device, strings.Join(kinds, ", ")))
		}
	}
	return out
}

// statusOf returns what a driver says of a device of the claim, nil if it says nothing.
func statusOf(claim *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) *resourcev1.AllocatedDeviceStatus {
	for i := range claim.Status.Devices {
		d := &claim.Status.Devices[i]
		share := r.ShareID == nil && d.ShareID == nil || r.ShareID != nil && d.ShareID != nil && *d.ShareID == string(*r.ShareID)
		if d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && share {
			return d
		}
	}
	return nil
}

// giveUp gives the devices back that the pod waits for: the last pod for which a claim is reserved
// frees it, the others their reservations.
func (p *Plugin) giveUp(ctx context.Context, pod *corev1.Pod, why error) error {
	for key := range namesOf(pod) {
		p.mu.Lock()
		e := p.claims[key]
		var next *resourcev1.ResourceClaim
		if e != nil && e.claim.Status.Allocation != nil {
			if waits, _ := claimBinding(e.claim); waits {
				next = without(e.claim, pod)
			}
		}
		p.mu.Unlock()
		if next != nil {
			p.release(ctx, e, next)
		}
	}
	return errors.New("binding of devices failed: " + why.Error())
}

// without returns the claim without the pod's reservation, and without its devices if no other pod
// has reserved them.
func without(claim *resourcev1.ResourceClaim, pod *corev1.Pod) *resourcev1.ResourceClaim {
	if only(claim, pod) {
		return deallocated(claim)
	}
	claim = claim.DeepCopy()
	claim.Status.ReservedFor = slices.DeleteFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
	return claim
}

// deallocated returns the claim without its devices.
func deallocated(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	claim = claim.DeepCopy()
	claim.Status.Allocation, claim.Status.ReservedFor, claim.Status.Devices = nil, nil, nil
	return claim
}
