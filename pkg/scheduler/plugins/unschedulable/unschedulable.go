// Package unschedulable keeps pods off cordoned nodes.
package unschedulable

import (
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/taints"
	"podium/pkg/scheduler/snapshot"
)

const reason = "node(s) were unschedulable"

// Plugin rejects nodes with spec.unschedulable, unless the pod tolerates the corresponding
// taint.
type Plugin struct{}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "NodeUnschedulable" }

// Reads returns whether the pod tolerates cordoned nodes.
func (Plugin) Reads(pod *snapshot.Pod) []any { return []any{tolerates(pod)} }

// EventsToRegister returns the events after which a rejected pod may fit.
func (Plugin) EventsToRegister() framework.Event { return framework.NodeSchedulable }

// PreFilter skips pods that tolerate cordoned nodes.
func (Plugin) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	if tolerates(pod) {
		return nil
	}
	cordoned := framework.NewStatus(framework.UnschedulableAndUnresolvable, reason)
	return func(n snapshot.Node) *framework.Status {
		if n.Object().Spec.Unschedulable {
			return cordoned
		}
		return nil
	}
}

func tolerates(pod *snapshot.Pod) bool {
	return taints.Tolerated(pod.Spec.Tolerations, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
}
