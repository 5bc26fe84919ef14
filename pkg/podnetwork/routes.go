package podnetwork

import (
	"cmp"
	"net/netip"
	"slices"
)

// Route leads to the pods of another node. A Route without Via says that the
// addresses are this node's: those that no pod has are unreachable, and packets
// to them do not take the default route.
type Route struct {
	Pods   netip.Prefix
	Via    netip.Addr // the node's address or, through the tunnel, the other end's
	Tunnel bool
}

// via is for logs.
func (r Route) via() string {
	if !r.Via.IsValid() {
		return "this node"
	}
	return r.Via.String()
}

func compareRoutes(a, b Route) int {
	return cmp.Or(a.Pods.Addr().Compare(b.Pods.Addr()), cmp.Compare(a.Pods.Bits(), b.Pods.Bits()), a.Via.Compare(b.Via))
}

// routesTo are the routes to all other nodes, and the one for own, the range of
// this node's pods.
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

// diff says what to do so that have becomes want.
func diff(have, want []Route) (add, remove []Route) {
	for _, r := range want {
		if !slices.Contains(have, r) {
			add = append(add, r)
		}
	}
	for _, r := range have {
		replaced := slices.ContainsFunc(want, func(w Route) bool { return w.Pods == r.Pods })
		if !slices.Contains(want, r) && !replaced { // adding replaces
			remove = append(remove, r)
		}
	}
	return add, remove
}
