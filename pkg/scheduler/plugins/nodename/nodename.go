// Package nodename places a pod with spec.nodeName on that node.
package nodename

import (
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const reason = "node(s) didn't match the requested node name"

// Plugin rejects all nodes except the one that the pod names.
type Plugin struct{}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "NodeName" }

// Reads returns spec.nodeName.
func (Plugin) Reads(pod *snapshot.Pod) []any {
	if pod.Spec.NodeName == "" {
		return nil
	}
	return []any{&pod.Spec.NodeName}
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (Plugin) EventsToRegister() framework.Event { return framework.NodeAdded }

// PreFilter skips pods that do not name a node.
func (Plugin) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	want := pod.Spec.NodeName
	if want == "" {
		return nil
	}
	mismatch := framework.NewStatus(framework.UnschedulableAndUnresolvable, reason)
	return func(n snapshot.Node) *framework.Status {
		if n.Name() != want {
			return mismatch
		}
		return nil
	}
}
