package manager

import (
	"podium/pkg/cloud"
	"podium/pkg/cloud/node"
	"podium/pkg/cloud/route"
	"podium/pkg/cloud/service"
	"podium/pkg/controller"
)

// specs returns all controllers, including those that c disables and those whose part the
// provider lacks.
func specs(c *Config, p *cloud.Provider) []controller.Spec {
	nodes := node.Options{Provider: p, Workers: c.NodeSyncs, Refresh: c.Refresh, Monitor: c.Monitor}
	routes := route.Options{ClusterCIDRs: c.ClusterCIDRs, Period: c.RoutePeriod}
	if c.ConfigureRoutes {
		routes.Routes = p.Routes
	}
	return []controller.Spec{
		node.Spec(nodes),
		node.LifecycleSpec(nodes),
		service.Spec(c.ServiceSyncs, p.LoadBalancers),
		route.Spec(routes),
	}
}
