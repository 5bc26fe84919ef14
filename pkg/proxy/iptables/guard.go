package iptables

import (
	"net/netip"

	"podium/pkg/netrules"
	"podium/pkg/proxy/services"
)

var (
	podSource = netrules.Chain{Table: netrules.Raw, Name: netrules.PodChainPrefix + "SOURCE"}
	metadata  = netrules.Chain{Table: netrules.Filter, Name: netrules.PodChainPrefix + "METADATA"}
)

// guard plans rules that restrict pods: packets from a pod's link must have the pod's
// own source address, to which the node's route leads through that link; and pods
// cannot reach the cloud's metadata service, which hands out the node's credentials.
// DNS at the same address stays open, because it is the resolver on some clouds.
func (p *Planner) guard(f *netrules.Fragment) {
	if p.Kernel.ReversePath {
		f.Ensure(podSource)
		if p.PodLinks != "" {
			f.Add(podSource, "-i "+p.PodLinks, p.Kernel.comment("pods send from their own address"), "-m rpfilter --invert", "-j DROP")
		}
	}
	f.Ensure(metadata)
	for _, a := range p.Metadata {
		if services.FamilyOf(a) != p.Family || p.PodTraffic == "" {
			continue
		}
		to := netrules.Dst(netrules.Host(a))
		f.Add(metadata, p.PodTraffic, to, netrules.Port("udp", 53), "-j RETURN")
		f.Add(metadata, p.PodTraffic, to, netrules.Port("tcp", 53), "-j RETURN")
		f.Add(metadata, p.PodTraffic, to, p.Kernel.comment("the cloud's metadata is not for pods"), "-j REJECT")
	}
}

// guardHooks returns the hooks that come first, so that no other rule accepts before.
func (p *Planner) guardHooks() []netrules.Hook {
	hooks := []netrules.Hook{{Table: metadata.Table, Chain: "FORWARD", Target: metadata.Name}}
	if p.Kernel.ReversePath {
		hooks = append(hooks, netrules.Hook{Table: podSource.Table, Chain: "PREROUTING", Target: podSource.Name})
	}
	return hooks
}

// DefaultMetadata returns the addresses of the metadata services of the large clouds:
// AWS, Azure, Google Cloud, OpenStack and others share the IPv4 one.
func DefaultMetadata() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("169.254.169.254"),
		netip.MustParseAddr("fd00:ec2::254"), // AWS
		netip.MustParseAddr("fd20:ce::254"),  // Google Cloud
	}
}
