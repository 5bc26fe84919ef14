package dynamicresources

import (
	"context"
	"errors"
	"fmt"
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

// Devices may have conditions that must be true before a pod that uses them is bound. Then the
// pod is bound later: the driver, or a controller, sets the conditions in the claim's status.
func (p *Plugin) awaitDevices(ctx context.Context, pod *snapshot.Pod) error {
	p.mu.Lock()
	b := p.binding(pod.Pod)
	p.mu.Unlock()
	switch {
	case b.failed != nil:
		return p.giveUp(ctx, pod.Pod, b.failed)
	case b.waits:
		return &framework.LaterError{Await: func(ctx context.Context) error { return p.await(ctx, pod) }}
	}
	return nil
}

// await blocks until all conditions of the pod's devices are true. If one says that they will
// not be, or after a time, it frees the claims: the pod may get other devices.
func (p *Plugin) await(ctx context.Context, pod *snapshot.Pod) error {
	for {
		p.mu.Lock()
		b, changed := p.binding(pod.Pod), p.changed
		p.mu.Unlock()
		left := time.Until(b.until)
		switch {
		case b.failed == nil && !b.waits:
			return nil
		case b.failed == nil && left <= 0:
			b.failed = fmt.Errorf("devices were not ready within %s", bindingTimeout)
		}
		if b.failed != nil {
			return p.giveUp(ctx, pod.Pod, b.failed)
		}
		late := time.NewTimer(left)
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

// binding looks at all devices of the pod. The caller holds p.mu.
func (p *Plugin) binding(pod *corev1.Pod) (b binding) {
	for key := range namesOf(pod) {
		e := p.claims[key]
		if e == nil || e.claim.Status.Allocation == nil {
			b.failed = fmt.Errorf("claim %s: the claim was deallocated in the meantime", key.Name)
			return b
		}
		a := e.claim.Status.Allocation
		for i := range a.Devices.Results {
			waits, failed := deviceBinding(e.claim, &a.Devices.Results[i])
			if failed != "" {
				b.failed = fmt.Errorf("claim %s: %s", key.Name, failed)
				return b
			}
			if !waits {
				continue
			}
			until := time.Now().Add(bindingTimeout)
			if at := a.AllocationTimestamp; at != nil {
				until = at.Add(bindingTimeout)
			}
			if !b.waits || until.Before(b.until) {
				b.until = until
			}
			b.waits = true
		}
	}
	return b
}

// deviceBinding reports whether a device has conditions that are not true yet, and why it will
// not be ready.
func deviceBinding(claim *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) (waits bool, failed string) {
	if len(r.BindingConditions) == 0 {
		return false, ""
	}
	status := statusOf(claim, r)
	if status == nil {
		return true, ""
	}
	for _, kind := range r.BindingFailureConditions {
		if meta.IsStatusConditionTrue(status.Conditions, kind) {
			c := meta.FindStatusCondition(status.Conditions, kind)
			return true, fmt.Sprintf("device %s/%s/%s: %s: %s", r.Driver, r.Pool, r.Device, kind, c.Message)
		}
	}
	for _, kind := range r.BindingConditions {
		waits = waits || !meta.IsStatusConditionTrue(status.Conditions, kind)
	}
	return waits, ""
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

// giveUp frees the claims with devices that the pod waits for, unless other pods use them.
func (p *Plugin) giveUp(ctx context.Context, pod *corev1.Pod, why error) error {
	for key := range namesOf(pod) {
		p.mu.Lock()
		e := p.claims[key]
		var freed *resourcev1.ResourceClaim
		if e != nil && e.claim.Status.Allocation != nil && only(e.claim, pod) && waiting(e.claim) {
			freed = deallocated(e.claim)
		}
		p.mu.Unlock()
		if freed != nil {
			p.release(ctx, e, freed)
		}
	}
	return errors.New("binding of devices failed: " + why.Error())
}

// waiting reports whether a claim has a device that is not ready.
func waiting(claim *resourcev1.ResourceClaim) bool {
	for i := range claim.Status.Allocation.Devices.Results {
		if waits, _ := deviceBinding(claim, &claim.Status.Allocation.Devices.Results[i]); waits {
			return true
		}
	}
	return false
}

// deallocated returns the claim without its devices.
func deallocated(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	claim = claim.DeepCopy()
	claim.Status.Allocation, claim.Status.ReservedFor, claim.Status.Devices = nil, nil, nil
	return claim
}
