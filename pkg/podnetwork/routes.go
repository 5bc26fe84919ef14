package podnetwork

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Route leads to the pods of another node.
type Route struct {
	Pods netip.Prefix
	Via  netip.Addr // the node's address
}

func compareRoutes(a, b Route) int {
	return cmp.Or(a.Pods.Addr().Compare(b.Pods.Addr()), cmp.Compare(a.Pods.Bits(), b.Pods.Bits()), a.Via.Compare(b.Via))
}

// wanted are the routes to all other nodes that have pods and an address.
func wanted(nodes []*corev1.Node, self string) []Route {
	var out []Route
	for _, n := range nodes {
		cidr, via := podCIDR(n), internalIP(n)
		if n.Name != self && cidr.IsValid() && via.IsValid() {
			out = append(out, Route{cidr, via})
		}
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

// podCIDR is the node's IPv4 range of pods, invalid while it has none.
func podCIDR(n *corev1.Node) netip.Prefix {
	for _, text := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
			return p.Masked()
		}
	}
	return netip.Prefix{}
}

func internalIP(n *corev1.Node) netip.Addr {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil && ip.Is4() {
			return ip
		}
	}
	return netip.Addr{}
}
