package v1alpha1

// Labels of the containers, networks and volumes of clusters whose nodes are
// containers.
const (
	LabelCluster = "podium.dev/cluster" // name of the cluster
	LabelRole    = "podium.dev/role"    // on a node: its Role
	LabelZone    = "podium.dev/zone"    // on a node: its zone
	// LabelBalancers is set on a network: FIRST-LAST, addresses for Services of
	// type LoadBalancer, which the engine does not assign to containers.
	LabelBalancers = "podium.dev/load-balancers"
)

// NetworkName returns the name of a cluster's network in the engine.
func NetworkName(cluster string) string { return "podium-" + cluster }
