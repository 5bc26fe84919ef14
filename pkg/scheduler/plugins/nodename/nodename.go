// Package nodename holds a pod that names its node to that node.
package nodename

import (
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const reason = "node(s) didn't match the requested node name"

// Plugin refuses every node but the one the pod names.
type Plugin struct{}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "NodeName" }

// Wakes says what could change an answer: only a new node.
func (Plugin) Wakes() framework.Event { return framework.NodeAdded }

// Filter asks for the node's name.
func (Plugin) Filter(pod *snapshot.Pod) func(snapshot.Node) []string {
	want := pod.Spec.NodeName
	if want == "" {
		return nil
	}
	no := []string{reason}
	return func(n snapshot.Node) []string {
		if n.Name() != want {
			return no
		}
		return nil
	}
}
