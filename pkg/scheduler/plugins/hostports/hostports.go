// Package hostports keeps two pods from wanting one port of a host.
package hostports

import (
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const reason = "node(s) didn't have free ports for the requested pod ports"

// Plugin refuses nodes on which another pod has a port this one wants.
type Plugin struct{}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "NodePorts" }

// Wakes says what could change an answer.
func (Plugin) Wakes() framework.Event { return framework.PodGone }

// Filter asks whether the ports are free.
func (Plugin) Filter(pod *snapshot.Pod) func(snapshot.Node) []string {
	if len(pod.Ports) == 0 {
		return nil
	}
	no := []string{reason}
	return func(n snapshot.Node) []string {
		for _, taken := range n.Ports() {
			for _, want := range pod.Ports {
				if want.Overlaps(taken) {
					return no
				}
			}
		}
		return nil
	}
}
