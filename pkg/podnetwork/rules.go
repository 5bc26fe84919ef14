package podnetwork

import (
	"net/netip"

	"podium/pkg/netrules"
)

var (
	forward = netrules.Chain{Table: netrules.Filter, Name: netrules.PodChainPrefix + "FORWARD"}
	egress  = netrules.Chain{Table: netrules.NAT, Name: netrules.PodChainPrefix + "EGRESS"}
)

// Hooks returns the jumps from the system's chains to the pod network's.
func Hooks() []netrules.Hook {
	return []netrules.Hook{
		{Table: forward.Table, Chain: "FORWARD", Target: forward.Name},
		{Table: egress.Table, Chain: "POSTROUTING", Target: egress.Name},
	}
}

// NoRules returns the rules before the node's pod CIDR is known: empty chains.
func NoRules() netrules.Fragment {
	var f netrules.Fragment
	f.Ensure(forward)
	f.Ensure(egress)
	return f
}

// podRules returns rules that accept pod traffic regardless of the system's policy
// (Docker sets it to DROP), and that masquerade it when it leaves the cluster, because
// there is no route back to a pod from outside.
func (c *Config) podRules(podCIDR netip.Prefix) netrules.Fragment {
	f := NoRules()
	pods, cluster := netrules.Src(podCIDR.Masked()), podCIDR.Masked()
	f.Add(forward, pods, "-j ACCEPT")
	f.Add(forward, netrules.Dst(podCIDR.Masked()), "-j ACCEPT")
	if c.ClusterCIDR.IsValid() && c.ClusterCIDR.Addr().Is4() == cluster.Addr().Is4() {
		cluster = c.ClusterCIDR.Masked()
	}
	f.Add(egress, pods, netrules.Dst(cluster), "-j RETURN")
	multicast := "-d 224.0.0.0/4"
	if cluster.Addr().Is6() {
		multicast = "-d ff00::/8"
	}
	f.Add(egress, pods, multicast, "-j RETURN")
	f.Add(egress, pods, "-j MASQUERADE")
	return f
}
