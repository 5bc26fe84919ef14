// Package hostports places pods that use the same host port on different nodes.
package hostports

import (
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const reason = "node(s) didn't have free ports for the requested pod ports"

// Plugin rejects nodes on which a pod uses a host port that this pod requests.
type Plugin struct{}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "NodePorts" }

// Reads returns the pod's host ports.
func (Plugin) Reads(pod *snapshot.Pod) []any {
	if len(pod.Ports) == 0 {
		return nil
	}
	return []any{&pod.Ports}
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (Plugin) EventsToRegister() framework.Event { return framework.PodGone }

// PreFilter skips pods without host ports.
func (Plugin) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	if len(pod.Ports) == 0 {
		return nil
	}
	conflict := framework.NewStatus(framework.Unschedulable, reason)
	return func(n snapshot.Node) *framework.Status {
		for _, taken := range n.Ports() {
			for _, want := range pod.Ports {
				if want.Overlaps(taken) {
					return conflict
				}
			}
		}
		return nil
	}
}
