package devicetainteviction

import (
	"context"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controller"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/pods"
	"podium/pkg/devicetaint"
)

// forever is how long a claim whose tolerations have no limit tolerates a taint.
const forever = time.Duration(math.MaxInt64)

// taint is a NoExecute taint of a device that a claim has.
type taint struct {
	resourcev1.DeviceTaint
	device *resourcev1.DeviceRequestAllocationResult
	rule   types.UID // "": the taint is that of the device's slice
}

// taintKey identifies a taint. A taint that is added again has another time.
type taintKey struct {
	devicetaint.DeviceID
	key, value string
	rule       types.UID
	added      int64 // Unix time; 0: not recorded
}

func (t *taint) id() taintKey {
	k := taintKey{DeviceID: id(t.device), key: t.Key, value: t.Value, rule: t.rule}
	if t.TimeAdded != nil {
		k.added = t.TimeAdded.Unix()
	}
	return k
}

// taints returns the NoExecute taints of a claim's devices.
func (r *reconciler) taints(c *resourcev1.ResourceClaim) (out []taint) {
	all, rules := devices(c), r.rules.List()
	for i := range all {
		d := &all[i]
		for _, t := range published(r.inPool(poolKey(d.Driver, d.Pool)), d.Device) {
			if t.Effect == resourcev1.DeviceTaintEffectNoExecute {
				out = append(out, taint{DeviceTaint: t, device: d})
			}
		}
		for _, rule := range rules {
			if t := rule.Spec.Taint; t.Effect == resourcev1.DeviceTaintEffectNoExecute && devicetaint.Selects(rule.Spec.DeviceSelector, id(d)) {
				out = append(out, taint{DeviceTaint: t, device: d, rule: rule.UID})
			}
		}
	}
	return out
}

// published returns the taints of a device in the newest generation of its pool.
func published(slices []*resourcev1.ResourceSlice, device string) (taints []resourcev1.DeviceTaint) {
	newest := int64(math.MinInt64)
	for _, s := range slices {
		newest = max(newest, s.Spec.Pool.Generation)
	}
	for _, s := range slices {
		if s.Spec.Pool.Generation != newest {
			continue
		}
		for i := range s.Spec.Devices {
			if s.Spec.Devices[i].Name == device {
				return s.Spec.Devices[i].Taints
			}
		}
	}
	return nil
}

// tolerated returns how long a taint is tolerated after it was added.
func (t *taint) tolerated() time.Duration {
	limit, any := forever, false
	for i := range t.device.Tolerations {
		tol := &t.device.Tolerations[i]
		if !devicetaint.Matches(tol, &t.DeviceTaint) {
			continue
		}
		any = true
		if tol.TolerationSeconds != nil {
			seconds := min(max(0, *tol.TolerationSeconds), int64(forever/time.Second))
			limit = min(limit, time.Duration(seconds)*time.Second)
		}
	}
	if !any {
		return 0
	}
	return limit
}

// reconcileClaim evicts the pods that use a claim whose devices are tainted.
func (r *reconciler) reconcileClaim(ctx context.Context, key loop.Key) (loop.Result, error) {
	c, ok := r.claims.Get(key.Namespace, key.Name)
	if !ok {
		r.added.Of(key, nil, time.Now())
		return loop.Done, nil
	}
	left, rules := r.patience(key, r.taints(c), time.Now())
	if left > 0 {
		if left == forever {
			return loop.Done, nil
		}
		return loop.After(left), nil
	}
	evict := r.consumers(c)
	err := loop.Parallel(ctx, len(evict), func(ctx context.Context, i int) error { return r.evict(ctx, key, evict[i], rules) })
	return loop.Done, err
}

// patience returns how long from now pods may have the devices with these taints; 0 or less:
// no longer, because of these rules among others.
func (r *reconciler) patience(key loop.Key, all []taint, now time.Time) (left time.Duration, rules map[types.UID]bool) {
	recorded := map[taintKey]time.Time{}
	for i := range all {
		var at time.Time
		if t := all[i].TimeAdded; t != nil {
			at = t.Time
		}
		recorded[all[i].id()] = at
	}
	added := r.added.Of(key, recorded, now)
	left, rules = forever, map[types.UID]bool{}
	for i := range all {
		limit := all[i].tolerated()
		if limit == forever {
			continue
		}
		limit -= now.Sub(added[all[i].id()])
		if limit <= 0 && all[i].rule != "" {
			rules[all[i].rule] = true
		}
		left = min(left, limit)
	}
	return left, rules
}

// consumers returns the pods that use a claim and are not ending.
func (r *reconciler) consumers(c *resourcev1.ResourceClaim) (out []*corev1.Pod) {
	for _, u := range c.Status.ReservedFor {
		if p, ok := r.pods.Get(c.Namespace, u.Name); ok && p.UID == u.UID && pods.Active(p) {
			out = append(out, p)
		}
	}
	return out
}

func (r *reconciler) evict(ctx context.Context, key loop.Key, p *corev1.Pod, rules map[types.UID]bool) error {
	r.Events.Eventf(p, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	deleted, err := controller.Evict(ctx, r.podWriter, key, p, "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
	if !deleted {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range rules {
		r.evicted[uid]++
	}
	return err
}
