package manager

import (
	"podium/pkg/cloud"
	"podium/pkg/cloud/node"
	"podium/pkg/cloud/route"
	"podium/pkg/cloud/service"
	"podium/pkg/controllers/crew"
	"podium/pkg/controllers/kit"
)

// controller is one line of the list.
type controller crew.Member

// list is every controller there is. One whose part the provider lacks, or that
// the configuration does not ask for, has nothing to build.
func list(c *Config, p *cloud.Provider) []controller {
	return []controller{
		{"cloud-node-controller", "cloud-node-controller", "cloud-node-controller", c.NodeSyncs, c.nodes(p)},
		{"cloud-node-lifecycle-controller", "cloud-node-lifecycle-controller", "cloud-node-controller", c.NodeSyncs, c.nodeLifecycle(p)},
		{"service-lb-controller", "service-controller", "service-controller", c.ServiceSyncs, c.services(p)},
		{"node-route-controller", "route_controller", "route-controller", 1, c.routes(p)},
	}
}

func members(c *Config, p *cloud.Provider) []crew.Member {
	var out []crew.Member
	for _, ctl := range list(c, p) {
		out = append(out, crew.Member(ctl))
	}
	return out
}

func (c *Config) node(k kit.Kit, p *cloud.Provider) node.Config {
	return node.Config{Kit: k, Provider: p, Refresh: c.Refresh, Monitor: c.Monitor}
}

func (c *Config) nodes(p *cloud.Provider) func(kit.Kit) (crew.Runner, error) {
	if p.Instances == nil {
		return nil
	}
	return crew.Plain(func(k kit.Kit) *node.Controller { return node.New(c.node(k, p)) })
}

func (c *Config) nodeLifecycle(p *cloud.Provider) func(kit.Kit) (crew.Runner, error) {
	if p.Instances == nil {
		return nil
	}
	return crew.Plain(func(k kit.Kit) *node.Lifecycle { return node.NewLifecycle(c.node(k, p)) })
}

func (c *Config) routes(p *cloud.Provider) func(kit.Kit) (crew.Runner, error) {
	if p.Routes == nil || !c.ConfigureRoutes {
		return nil
	}
	return crew.Plain(func(k kit.Kit) *route.Controller {
		return route.New(route.Config{Kit: k, Routes: p.Routes, ClusterCIDRs: c.ClusterCIDRs, Period: c.RoutePeriod})
	})
}

func (c *Config) services(p *cloud.Provider) func(kit.Kit) (crew.Runner, error) {
	if p.LoadBalancers == nil {
		return nil
	}
	return crew.Plain(func(k kit.Kit) *service.Controller {
		return service.New(service.Config{Kit: k, LoadBalancers: p.LoadBalancers})
	})
}
