package v1alpha1

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Default sets the defaults of empty fields.
func (c *Cluster) Default() {
	fill(&c.APIVersion, APIVersion)
	fill(&c.Kind, KindCluster)
	fill(&c.Metadata.Name, "podium")
	fill(&c.CloudProvider, CloudNone)
	fill(&c.PodSecurity, PodSecurityPrivileged)
	fill(&c.Networking.IPFamily, c.Networking.familyOfSubnets())
	pods, services := "10.244.0.0/16", "10.96.0.0/16"
	if c.Networking.IPFamily == IPv6 {
		pods, services = "fd00:10:244::/56", "fd00:10:96::/112"
	}
	fill(&c.Networking.PodSubnet, pods)
	fill(&c.Networking.ServiceSubnet, services)
	fill(&c.Networking.DNSDomain, "cluster.local")
	fill(&c.Networking.PodNetwork, PodNetworkRoutes)
	fill(&c.Networking.APIServerAddress, "127.0.0.1")
	if len(c.Nodes) == 0 {
		c.Nodes = []Node{{Role: ControlPlane}}
	}
	for i := range c.Nodes {
		for j := range c.Nodes[i].ExtraPortMappings {
			fill(&c.Nodes[i].ExtraPortMappings[j].ListenAddress, "127.0.0.1")
			fill(&c.Nodes[i].ExtraPortMappings[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func fill[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

// familyOfSubnets returns the IP family of the given ranges.
func (n *Networking) familyOfSubnets() string {
	if strings.Contains(cmp.Or(n.PodSubnet, n.ServiceSubnet), ":") {
		return IPv6
	}
	return IPv4
}
