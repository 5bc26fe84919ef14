package l2announce

import (
	"cmp"
	"crypto/sha256"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"podium/pkg/conditions"
)

// candidates returns the nodes that may announce an address of a Service, in the
// order in which they act; none if svc is nil.
func candidates(address netip.Addr, svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, nodes []*corev1.Node) []string {
	if svc == nil {
		return nil
	}
	var out []string
	for _, n := range nodes {
		if eligible(n) && (svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal || serves(n.Name, endpoints)) {
			out = append(out, n.Name)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(slices.Compare(score(a, address), score(b, address)), cmp.Compare(a, b))
	})
	return out
}

// score is the sort key of a node for an address. It depends on these two only, so
// that adding or removing a node does not change the order of the others.
func score(node string, address netip.Addr) []byte {
	sum := sha256.Sum256([]byte(node + "\x00" + address.String()))
	return sum[:]
}

// eligible reports whether a node may announce addresses.
func eligible(n *corev1.Node) bool {
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded || n.DeletionTimestamp != nil {
		return false
	}
	return conditions.IsTrue(n.Status.Conditions, corev1.NodeReady)
}

// serves reports whether a node has a ready endpoint.
func serves(node string, endpoints []*discoveryv1.EndpointSlice) bool {
	for _, s := range endpoints {
		for _, e := range s.Endpoints {
			if e.NodeName != nil && *e.NodeName == node && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				return true
			}
		}
	}
	return false
}
