// Package unschedulable keeps pods off nodes that are cordoned.
package unschedulable

import (
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/taints"
	"podium/pkg/scheduler/snapshot"
)

const reason = "node(s) were unschedulable"

// Plugin refuses nodes whose spec says unschedulable, unless the pod tolerates
// the taint that stands for it.
type Plugin struct{}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "NodeUnschedulable" }

// Wakes says what could change an answer.
func (Plugin) Wakes() framework.Event { return framework.NodeSchedulable }

// Filter asks whether the node is cordoned.
func (Plugin) Filter(pod *snapshot.Pod) func(snapshot.Node) []string {
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if taints.Tolerated(pod.Spec.Tolerations, cordon) {
		return nil
	}
	no := []string{reason}
	return func(n snapshot.Node) []string {
		if n.Object().Spec.Unschedulable {
			return no
		}
		return nil
	}
}
