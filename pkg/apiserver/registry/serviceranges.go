package registry

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"podium/pkg/scheme"
)

// serviceRanges are the ranges of cluster IPs: those of the ServiceCIDRs, which it
// follows. It is safe for concurrent use.
type serviceRanges struct {
	initial netip.Prefix // the range while there are no ServiceCIDRs

	mu      sync.Mutex
	objects map[string]*networkingv1.ServiceCIDR // shared, not modified
}

func newServiceRanges(initial netip.Prefix) *serviceRanges {
	return &serviceRanges{initial: initial.Masked(), objects: map[string]*networkingv1.ServiceCIDR{}}
}

// Replace implements watchcache.Follower.
func (r *serviceRanges) Replace(all []scheme.Object) {
	objects := map[string]*networkingv1.ServiceCIDR{}
	for _, obj := range all {
		objects[obj.GetName()] = obj.(*networkingv1.ServiceCIDR)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects = objects
}

// Put implements watchcache.Follower.
func (r *serviceRanges) Put(obj scheme.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[obj.GetName()] = obj.(*networkingv1.ServiceCIDR)
}

// Remove implements watchcache.Follower.
func (r *serviceRanges) Remove(_, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.objects, name)
}

// ready returns the ranges that addresses may be allocated from, the largest first.
func (r *serviceRanges) ready() []ipRange { return r.list(allocatable) }

// all returns the ranges that may have allocated addresses.
func (r *serviceRanges) all() []ipRange {
	return r.list(func(*networkingv1.ServiceCIDR) bool { return true })
}

func (r *serviceRanges) list(want func(*networkingv1.ServiceCIDR) bool) (out []ipRange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.objects) == 0 {
		return []ipRange{{r.initial}}
	}
	found := map[ipRange]bool{}
	for _, o := range r.objects {
		for _, text := range o.Spec.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err == nil && p.Addr().Is6() == r.initial.Addr().Is6() && want(o) {
				found[ipRange{p.Masked()}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b ipRange) int {
		return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
}

// allocatable reports whether a ServiceCIDR is ready. One without the condition is:
// the controller that sets it may not run yet.
func allocatable(c *networkingv1.ServiceCIDR) bool {
	ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	return c.DeletionTimestamp == nil && (ready == nil || ready.Status == "True")
}

// within reports whether a range allows the address.
func within(ranges []ipRange, ip netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r ipRange) bool { return r.usable(ip) })
}

// ipRange is a range of addresses.
type ipRange struct{ netip.Prefix }

// size returns the number of addresses that can be allocated: all except the
// network address and the IPv4 broadcast address. A very large range is limited to
// 2^32 addresses.
func (r ipRange) size() int64 {
	const endless = 1 << 32
	bits := r.Addr().BitLen() - r.Bits()
	if bits >= 32 {
		return endless - 2
	}
	size := int64(1)<<bits - 1
	if r.Addr().Is4() {
		size--
	}
	return max(size, 1)
}

// nth returns the address with index n; 0 is the first address after the network
// address.
func (r ipRange) nth(n int64) netip.Addr {
	raw := r.Addr().AsSlice()
	n++
	for i := len(raw) - 1; i >= 0 && n > 0; i-- {
		n += int64(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	ip, _ := netip.AddrFromSlice(raw)
	return ip
}

func (r ipRange) usable(ip netip.Addr) bool {
	return r.Contains(ip) && ip != r.Addr() && (ip.Is6() || ip != r.nth(r.size()))
}
