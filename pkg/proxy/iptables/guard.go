package iptables

import (
	"net/netip"

	"podium/pkg/proxy/rules"
	"podium/pkg/proxy/services"
)

var (
	podSource = rules.Chain{Table: rules.Raw, Name: rules.PodChainPrefix + "SOURCE"}
	metadata  = rules.Chain{Table: rules.Filter, Name: rules.PodChainPrefix + "METADATA"}
)

// guard plans what keeps pods to themselves: a packet from a pod's link has the
// pod's own address, to which the node's route leads through that link; and the
// cloud's metadata service, which hands out the node's credentials, answers no
// pod. DNS on the same address stays open: on some clouds it is the resolver.
func (p *Planner) guard(f *rules.Fragment) {
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
		to := rules.Dst(rules.Host(a))
		f.Add(metadata, p.PodTraffic, to, rules.Port("udp", 53), "-j RETURN")
		f.Add(metadata, p.PodTraffic, to, rules.Port("tcp", 53), "-j RETURN")
		f.Add(metadata, p.PodTraffic, to, p.Kernel.comment("the cloud's metadata is not for pods"), "-j REJECT")
	}
}

// guardHooks stand before all others: no other rule may accept first.
func (p *Planner) guardHooks() []rules.Hook {
	hooks := []rules.Hook{{Table: metadata.Table, Chain: "FORWARD", Target: metadata.Name}}
	if p.Kernel.ReversePath {
		hooks = append(hooks, rules.Hook{Table: podSource.Table, Chain: "PREROUTING", Target: podSource.Name})
	}
	return hooks
}

// DefaultMetadata are the addresses of the metadata services of the large
// clouds: AWS, Azure, Google Cloud, OpenStack and others share the IPv4 one.
func DefaultMetadata() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("169.254.169.254"),
		netip.MustParseAddr("fd00:ec2::254"), // AWS
		netip.MustParseAddr("fd20:ce::254"),  // Google Cloud
	}
}
