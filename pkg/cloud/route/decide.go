package route

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cloud"
	"podium/pkg/conditions"
)

// plan is the changes after which each node has its routes.
type plan struct {
	remove, create []cloud.Route
	missing        map[string]int // how many routes each managed node lacks
}

// decide compares the pod CIDRs of the nodes with the routes. It ignores routes to addresses
// outside the cluster. Of two nodes with the same pod CIDR, the older one gets the route.
func decide(nodes []*corev1.Node, have []cloud.Route, cluster []netip.Prefix) plan {
	p := plan{missing: map[string]int{}}
	there := map[netip.Prefix]cloud.Route{}
	for _, r := range have {
		there[r.Destination] = r
	}
	wanted := map[netip.Prefix]bool{}
	for _, n := range byAge(nodes) {
		if len(podRanges(n)) == 0 {
			p.missing[n.Name]++ // until it has a pod CIDR
		}
		for _, pods := range podRanges(n) {
			if !within(cluster, pods) {
				continue
			}
			if wanted[pods] { // by an older node
				p.missing[n.Name]++
				continue
			}
			wanted[pods] = true
			r, ok := there[pods]
			if !ok || r.Node != n.Name {
				p.missing[n.Name]++
				p.create = append(p.create, cloud.Route{Node: n.Name, Destination: pods})
				continue
			}
			p.missing[n.Name] += 0 // the node is managed even if it lacks none
			if r.Incomplete {
				p.create = append(p.create, r)
			}
		}
	}
	for _, r := range have {
		if within(cluster, r.Destination) && !wanted[r.Destination] {
			p.remove = append(p.remove, r)
		}
	}
	return p
}

func byAge(nodes []*corev1.Node) []*corev1.Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// podRanges returns the valid pod CIDRs of the node.
func podRanges(n *corev1.Node) (out []netip.Prefix) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 {
		texts = []string{n.Spec.PodCIDR}
	}
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

func within(cluster []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(cluster, func(c netip.Prefix) bool { return c.Contains(p.Addr()) && c.Bits() <= p.Bits() })
}

// unavailable returns the node's condition, nil if it has none yet.
func unavailable(n *corev1.Node) *corev1.NodeCondition {
	return conditions.Find(n.Status.Conditions, corev1.NodeNetworkUnavailable)
}

// sameRoutes reports whether a change of a node affects no route.
func sameRoutes(old, new *corev1.Node) bool {
	return old != nil && new != nil && old.UID == new.UID &&
		slices.Equal(podRanges(old), podRanges(new)) && slices.Equal(old.Status.Addresses, new.Status.Addresses) &&
		(unavailable(old) == nil) == (unavailable(new) == nil)
}
