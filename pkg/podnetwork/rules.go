package podnetwork

import (
	"net/netip"

	"podium/pkg/proxy/rules"
)

var (
	forward = rules.Chain{Table: rules.Filter, Name: rules.PodChainPrefix + "FORWARD"}
	egress  = rules.Chain{Table: rules.NAT, Name: rules.PodChainPrefix + "EGRESS"}
)

// Hooks are the places where the pod network's chains hang in the system's.
func Hooks() []rules.Hook {
	return []rules.Hook{
		{Table: forward.Table, Chain: "FORWARD", Target: forward.Name},
		{Table: egress.Table, Chain: "POSTROUTING", Target: egress.Name},
	}
}

// NoRules is the pod network before the node's pod CIDR is known: its chains
// exist and are empty.
func NoRules() rules.Fragment {
	var f rules.Fragment
	f.Ensure(forward)
	f.Ensure(egress)
	return f
}

// podRules let pods' packets through, whatever the system's policy is (Docker
// sets it to DROP), and hide them behind the node where they leave the
// cluster: nobody out there knows a way back to a pod.
func (c *Config) podRules(podCIDR netip.Prefix) rules.Fragment {
	f := NoRules()
	pods, cluster := rules.Src(podCIDR.Masked()), podCIDR.Masked()
	f.Add(forward, pods, "-j ACCEPT")
	f.Add(forward, rules.Dst(podCIDR.Masked()), "-j ACCEPT")
	if c.ClusterCIDR.IsValid() && c.ClusterCIDR.Addr().Is4() == cluster.Addr().Is4() {
		cluster = c.ClusterCIDR.Masked()
	}
	f.Add(egress, pods, rules.Dst(cluster), "-j RETURN")
	multicast := "-d 224.0.0.0/4"
	if cluster.Addr().Is6() {
		multicast = "-d ff00::/8"
	}
	f.Add(egress, pods, multicast, "-j RETURN")
	f.Add(egress, pods, "-j MASQUERADE")
	return f
}
