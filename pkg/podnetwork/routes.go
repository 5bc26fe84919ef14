package podnetwork

import (
	"cmp"
	"net/netip"
	"slices"
)

// Route is a route to the pods of a node. A Route without Via is for this node's own
// pod CIDR: it makes addresses without a pod unreachable, so that packets to them do
// not take the default route.
type Route struct {
	Pods   netip.Prefix
	Via    netip.Addr // the node's address or, through the tunnel, its address in the tunnel
	Tunnel bool
}

// via formats Via for logs.
func (r Route) via() string {
	if !r.Via.IsValid() {
		return "this node"
	}
	return r.Via.String()
}

func compareRoutes(a, b Route) int {
	return cmp.Or(a.Pods.Addr().Compare(b.Pods.Addr()), cmp.Compare(a.Pods.Bits(), b.Pods.Bits()), a.Via.Compare(b.Via))
}

// routesTo returns the routes to all peers and the one for own, this node's pod CIDR.
func routesTo(own netip.Prefix, peers []peer, tunnel bool) []Route {
	out := []Route{{Pods: own}}
	for _, p := range peers {
		r := Route{Pods: p.pods, Via: p.address}
		if tunnel {
			r.Via, r.Tunnel = p.gateway(), true
		}
		out = append(out, r)
	}
	slices.SortFunc(out, compareRoutes)
	return out
}

// diff returns the changes from have to want.
func diff(have, want []Route) (add, remove []Route) {
	for _, r := range want {
		if !slices.Contains(have, r) {
			add = append(add, r)
		}
	}
	for _, r := range have {
		replaced := slices.ContainsFunc(want, func(w Route) bool { return w.Pods == r.Pods })
		if !slices.Contains(want, r) && !replaced { // adding a route replaces the old one
			remove = append(remove, r)
		}
	}
	return add, remove
}
