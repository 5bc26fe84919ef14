package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Indexes of Services by cluster IP and by external IP.
const (
	byClusterIP  = "clusterIP"
	byExternalIP = "externalIP"
)

func clusterIPs(s *corev1.Service) []string {
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	return append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)
}

// claims re-plans the Services whose external IPs are the cluster IP of a Service
// that was added, changed or removed.
func (p *Proxy) claims(old, new *corev1.Service) {
	for _, s := range []*corev1.Service{old, new} {
		if s == nil {
			continue
		}
		for _, ip := range clusterIPs(s) {
			for _, claimant := range p.services.By(byExternalIP, ip) {
				p.pending.service(nil, claimant)
			}
		}
	}
}

// captured returns why an external IP is not served; "" if it is. A user who can write
// a Service must not take over the address of this node, a pod or another Service
// (CVE-2020-8554). The API server rejects external IPs unless it is configured
// otherwise; this check applies even then. Load-balancer addresses are not checked:
// only clients that may write the status of Services set them, and addresses of nodes
// are legitimate there.
func (p *Proxy) captured(ip netip.Addr) string {
	if p.cfg.Rules.ClusterCIDR.Contains(ip) {
		return fmt.Sprintf("externalIP %s is in the range of pods", ip)
	}
	if len(p.services.By(byClusterIP, ip.String())) > 0 {
		return fmt.Sprintf("externalIP %s is the cluster IP of a Service", ip)
	}
	node, ok := p.currentNode()
	if ok && slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == ip.String() }) {
		return fmt.Sprintf("externalIP %s is an address of this node", ip)
	}
	return ""
}
