package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Default fills in what is left out.
func (c *Cluster) Default() {
	fill(&c.APIVersion, APIVersion)
	fill(&c.Kind, KindCluster)
	fill(&c.Metadata.Name, "podium")
	fill(&c.Networking.PodSubnet, "10.244.0.0/16")
	fill(&c.Networking.ServiceSubnet, "10.96.0.0/16")
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
