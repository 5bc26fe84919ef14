package plugins

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/defaultpreemption"
	"podium/pkg/scheduler/plugins/hostports"
	"podium/pkg/scheduler/plugins/imagelocality"
	"podium/pkg/scheduler/plugins/nodeaffinity"
	"podium/pkg/scheduler/plugins/nodename"
	"podium/pkg/scheduler/plugins/resources"
	"podium/pkg/scheduler/plugins/taints"
	"podium/pkg/scheduler/plugins/unschedulable"
)

// entry is a plugin of the default profile.
type entry struct {
	name   string
	weight int64
	make   func(args json.RawMessage) (framework.Plugin, error)
}

// all returns the plugins of the default profile, in upstream's order and with upstream's
// weights.
func all() []entry {
	return []entry{
		{"NodeUnschedulable", 0, without(func() framework.Plugin { return unschedulable.Plugin{} })},
		{"NodeName", 0, without(func() framework.Plugin { return nodename.Plugin{} })},
		{"TaintToleration", 3, without(func() framework.Plugin { return taints.New() })},
		{"NodeAffinity", 2, with(func(a nodeAffinityArgs) (framework.Plugin, error) { return nodeaffinity.New(a.AddedAffinity) })},
		{"NodePorts", 0, without(func() framework.Plugin { return hostports.Plugin{} })},
		{"NodeResourcesFit", 1, with(func(a resources.FitArgs) (framework.Plugin, error) { return resources.NewFit(a) })},
		{"PodTopologySpread", 2, with(newSpread)},
		{"InterPodAffinity", 2, with(newInterPodAffinity)},
		{"DefaultPreemption", 0, without(func() framework.Plugin { return defaultpreemption.New() })},
		{"NodeResourcesBalancedAllocation", 1, with(func(a balancedArgs) (framework.Plugin, error) { return resources.NewBalanced(a.Resources) })},
		{"ImageLocality", 1, without(func() framework.Plugin { return imagelocality.Plugin{} })},
	}
}

// Default returns the plugins of the default profile. Each call returns new plugins: schedulers
// must not share them. backed is that of Build.
func Default(backed func(corev1.ResourceName) bool) []framework.Weighted {
	list, err := Profile{}.Build(backed)
	if err != nil {
		panic(err) // the defaults are valid
	}
	return list
}
