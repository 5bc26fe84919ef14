package v1alpha1

// Labels of the containers, networks and volumes of clusters of node
// containers.
const (
	LabelCluster = "podium.dev/cluster" // the cluster's name
	LabelRole    = "podium.dev/role"    // of a node: a Role
	LabelZone    = "podium.dev/zone"    // of a node: its zone
	// LabelBalancers is of a network: FIRST-LAST, addresses that the engine does
	// not give out, for Services of type LoadBalancer.
	LabelBalancers = "podium.dev/load-balancers"
)

// NetworkName is the name of a cluster's network.
func NetworkName(cluster string) string { return "podium-" + cluster }
