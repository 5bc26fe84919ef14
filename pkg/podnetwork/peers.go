package podnetwork

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// peer is another node with its pod CIDR.
type peer struct {
	node    *corev1.Node
	pods    netip.Prefix
	address netip.Addr // zero for this node, which needs none
}

// gateway returns the peer's address in the tunnel: the first address of its pod
// CIDR, which no pod gets.
func (p peer) gateway() netip.Addr { return p.pods.Addr() }

// trouble is why a node's pods cannot be reached.
type trouble struct {
	node    *corev1.Node
	reason  string // of the event
	message string
}

// The reasons of events about nodes.
const (
	reasonNoCIDR      = "PodCIDRMissing"
	reasonBadCIDR     = "PodCIDRInvalid"
	reasonOverlap     = "PodCIDROverlap"
	reasonNoAddress   = "NodeAddressMissing"
	reasonDualStack   = "DualStackNotSupported"
	reasonUnreachable = "PodNetworkUnreachable"
)

// podCIDR returns the node's pod CIDR. If there are several, it returns the first one
// and a trouble.
func podCIDR(n *corev1.Node) (netip.Prefix, *trouble) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	if len(texts) == 0 {
		return netip.Prefix{}, &trouble{n, reasonNoCIDR, "the node has no podCIDR (spec.podCIDR): is kube-controller-manager running with --cluster-cidr and --allocate-node-cidrs?"}
	}
	p, err := netip.ParsePrefix(texts[0])
	if err != nil {
		return netip.Prefix{}, &trouble{n, reasonBadCIDR, fmt.Sprintf("spec.podCIDR %q: %v", texts[0], err)}
	}
	if p = p.Masked(); p.Addr().BitLen()-p.Bits() < 2 {
		return netip.Prefix{}, &trouble{n, reasonBadCIDR, fmt.Sprintf("spec.podCIDR %s has no room for pods", p)}
	}
	if len(texts) > 1 {
		return p, &trouble{n, reasonDualStack, fmt.Sprintf("the node has several ranges of pods (%v): this pod network serves one family, and takes %s", texts, p)}
	}
	return p, nil
}

// internalIP returns the node's InternalIP of like's family; zero if it has none.
func internalIP(n *corev1.Node, like netip.Addr) netip.Addr {
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type == corev1.NodeInternalIP && err == nil && ip.Zone() == "" && ip.Unmap().Is4() == like.Is4() {
			return ip.Unmap()
		}
	}
	return netip.Addr{}
}

// peersOf returns the nodes that this node can reach, and troubles for the others.
// own is this node's pod CIDR. If the pod CIDRs of two nodes overlap, this node wins,
// then the older one.
func peersOf(nodes []*corev1.Node, self string, own, cluster netip.Prefix) (peers []peer, troubles []trouble) {
	byAge := slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	taken := []peer{{node: nodeNamed(nodes, self), pods: own}}
	for _, n := range byAge {
		if n.Name == self {
			continue
		}
		pods, bad := podCIDR(n)
		if bad == nil || bad.reason == reasonDualStack {
			if worse := misplaced(n, pods, own, cluster, taken); worse != nil {
				bad, pods = worse, netip.Prefix{}
			}
		}
		if bad != nil {
			troubles = append(troubles, *bad)
		}
		if !pods.IsValid() {
			continue
		}
		taken = append(taken, peer{node: n, pods: pods})
		address := internalIP(n, own.Addr())
		if !address.IsValid() {
			troubles = append(troubles, trouble{n, reasonNoAddress, fmt.Sprintf("the node has no InternalIP of the family of its pods (%s)", pods)})
			continue
		}
		peers = append(peers, peer{n, pods, address})
	}
	return peers, troubles
}

func nodeNamed(nodes []*corev1.Node, name string) *corev1.Node {
	for _, n := range nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// misplaced returns why pods cannot be the pod CIDR of n; nil if it can.
func misplaced(n *corev1.Node, pods, own, cluster netip.Prefix, taken []peer) *trouble {
	if pods.Addr().Is4() != own.Addr().Is4() {
		return &trouble{n, reasonBadCIDR, fmt.Sprintf("the node's pods (%s) are of another address family than those here (%s)", pods, own)}
	}
	if cluster.IsValid() && !(cluster.Contains(pods.Addr()) && pods.Bits() >= cluster.Bits()) {
		return &trouble{n, reasonBadCIDR, fmt.Sprintf("spec.podCIDR %s is not within the cluster's %s (--cluster-cidr)", pods, cluster)}
	}
	for _, t := range taken {
		if t.pods.Overlaps(pods) {
			return &trouble{n, reasonOverlap, fmt.Sprintf("spec.podCIDR %s overlaps that of node %s (%s): its pods are not reached; delete the Node, so that it gets another range", pods, t.node.Name, t.pods)}
		}
	}
	return nil
}
