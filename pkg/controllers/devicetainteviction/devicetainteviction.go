package devicetainteviction

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/devicetaint"
	"podium/pkg/wallclock"
)

// statusPeriod is the minimum time between two reports in the status of a rule.
const statusPeriod = 10 * time.Second

// Spec describes the device taint eviction controller.
func Spec() controller.Spec {
	const name = "device-taint-eviction-controller"
	return controller.Spec{Name: name, Workers: 8, New: build}
}

// reconciler holds both loops.
type reconciler struct {
	controller.Context
	pods   *informer.Informer[*corev1.Pod]
	claims *informer.Informer[*resourcev1.ResourceClaim]
	slices *informer.Informer[*resourcev1.ResourceSlice]
	rules  *informer.Informer[*resourcev1.DeviceTaintRule]
	inPool func(pool string) []*resourcev1.ResourceSlice // by poolKey
	users  func(pool string) []*resourcev1.ResourceClaim // claims with devices of a pool

	byClaim, byRule *loop.Loop
	podWriter       controller.Writer[*corev1.Pod]                 // for keys of byClaim
	ruleWriter      controller.Writer[*resourcev1.DeviceTaintRule] // for keys of byRule

	added wallclock.Anchors[loop.Key, taintKey] // when the taints of a claim's devices were added

	mu      sync.Mutex
	evicted map[types.UID]int // pods evicted because of a rule
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		Context: c,
		pods:    informers.For[*corev1.Pod](c.Informers),
		claims:  informers.For[*resourcev1.ResourceClaim](c.Informers),
		slices:  informers.For[*resourcev1.ResourceSlice](c.Informers),
		rules:   informers.For[*resourcev1.DeviceTaintRule](c.Informers),
		evicted: map[types.UID]int{},
	}
	r.byClaim = c.NewLoop("device_taint_eviction", 0, r.reconcileClaim, r.pods, r.claims, r.slices, r.rules)
	r.byRule = c.NewLoop("device_taint_rule", statusPeriod, r.reconcileRule, r.pods, r.claims, r.slices, r.rules)
	r.podWriter = controller.NewWriter(c, r.byClaim, r.pods)
	r.ruleWriter = controller.NewWriter(c, r.byRule, r.rules)
	r.wake()
	return r, nil
}

// poolKey is the key of a pool in the indexes.
func poolKey(driver, pool string) string { return driver + "/" + pool }

// wake says which changes wake which keys.
func (r *reconciler) wake() {
	r.inPool = informers.Index(r.slices, "pool", func(s *resourcev1.ResourceSlice) []string {
		return []string{poolKey(s.Spec.Driver, s.Spec.Pool.Name)}
	})
	r.users = informers.Index(r.claims, "pools", func(c *resourcev1.ResourceClaim) (pools []string) {
		for _, d := range devices(c) {
			pools = append(pools, poolKey(d.Driver, d.Pool))
		}
		return pools
	})
	reserved := informers.Index(r.claims, "reservedfor", func(c *resourcev1.ResourceClaim) (uids []string) {
		for _, u := range c.Status.ReservedFor {
			uids = append(uids, string(u.UID))
		}
		return uids
	})
	loop.WakeOn(r.byClaim, r.claims, loop.Self)
	loop.WakeOn(r.byClaim, r.pods, func(p *corev1.Pod) []loop.Key { return keys(reserved(string(p.UID))) })
	loop.WakeOn(r.byClaim, r.slices, func(s *resourcev1.ResourceSlice) []loop.Key {
		return keys(r.users(poolKey(s.Spec.Driver, s.Spec.Pool.Name)))
	})
	loop.WakeOn(r.byClaim, r.rules, func(rule *resourcev1.DeviceTaintRule) []loop.Key { return keys(r.selected(rule)) })
	loop.WakeOn(r.byRule, r.rules, loop.Self)
	loop.WakeOn(r.byRule, r.claims, r.rulesOf)
	loop.WakeOn(r.byRule, r.pods, func(p *corev1.Pod) (out []loop.Key) {
		for _, c := range reserved(string(p.UID)) {
			out = append(out, r.rulesOf(c)...)
		}
		return out
	})
}

func keys(claims []*resourcev1.ResourceClaim) (out []loop.Key) {
	for _, c := range claims {
		out = append(out, loop.KeyOf(c))
	}
	return out
}

// Run runs both loops until ctx ends.
func (r *reconciler) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.byClaim.Run(ctx) })
	g.Go(func() error { return r.byRule.Run(ctx) })
	return g.Wait()
}

// devices returns the devices that a claim has.
func devices(c *resourcev1.ResourceClaim) []resourcev1.DeviceRequestAllocationResult {
	if c.Status.Allocation == nil {
		return nil
	}
	return c.Status.Allocation.Devices.Results
}

func id(d *resourcev1.DeviceRequestAllocationResult) devicetaint.DeviceID {
	return devicetaint.DeviceID{Driver: d.Driver, Pool: d.Pool, Device: d.Device}
}

// selected returns the claims with devices that a rule selects.
func (r *reconciler) selected(rule *resourcev1.DeviceTaintRule) (out []*resourcev1.ResourceClaim) {
	s := rule.Spec.DeviceSelector
	if s == nil {
		return nil
	}
	candidates := r.claims.List
	if s.Driver != nil && s.Pool != nil {
		candidates = func() []*resourcev1.ResourceClaim { return r.users(poolKey(*s.Driver, *s.Pool)) }
	}
	for _, c := range candidates() {
		if selects(rule, c) {
			out = append(out, c)
		}
	}
	return out
}

// selects reports whether a rule selects a device of a claim.
func selects(rule *resourcev1.DeviceTaintRule, c *resourcev1.ResourceClaim) bool {
	all := devices(c)
	for i := range all {
		if devicetaint.Selects(rule.Spec.DeviceSelector, id(&all[i])) {
			return true
		}
	}
	return false
}

// rulesOf returns the keys of the rules that select devices of a claim.
func (r *reconciler) rulesOf(c *resourcev1.ResourceClaim) (out []loop.Key) {
	for _, rule := range r.rules.List() {
		if selects(rule, c) {
			out = append(out, loop.KeyOf(rule))
		}
	}
	return out
}
