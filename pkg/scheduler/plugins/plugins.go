package plugins

import (
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/hostports"
	"podium/pkg/scheduler/plugins/nodeaffinity"
	"podium/pkg/scheduler/plugins/nodename"
	"podium/pkg/scheduler/plugins/resources"
	"podium/pkg/scheduler/plugins/taints"
	"podium/pkg/scheduler/plugins/unschedulable"
)

// Filters are asked in this order.
func Filters() []framework.Filter {
	return []framework.Filter{
		unschedulable.Plugin{},
		nodename.Plugin{},
		taints.New(),
		nodeaffinity.Plugin{},
		hostports.Plugin{},
		resources.NewFit(),
	}
}

// Scorers are the preferences, weighted as upstream does.
func Scorers() []framework.Weighted {
	return []framework.Weighted{
		{Scorer: taints.New(), Weight: 3},
		{Scorer: nodeaffinity.Plugin{}, Weight: 2},
		{Scorer: resources.LeastAllocated{}, Weight: 1},
		{Scorer: resources.Balanced{}, Weight: 1},
	}
}
