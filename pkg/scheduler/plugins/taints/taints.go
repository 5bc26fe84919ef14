// Package taints keeps pods off nodes with taints they do not tolerate, or
// leads them elsewhere when the taint only asks for it.
package taints

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const reasonFormat = "node(s) had untolerated taint {%s: %s}"

// Plugin filters by the taints NoSchedule and NoExecute and scores by
// PreferNoSchedule.
type Plugin struct {
	reasons map[corev1.Taint][]string // written once a taint, not once a node
}

// New makes a plugin, for one goroutine at a time.
func New() *Plugin { return &Plugin{reasons: map[corev1.Taint][]string{}} }

// Name is upstream's name of the plugin.
func (*Plugin) Name() string { return "TaintToleration" }

// Wakes says what could change an answer.
func (*Plugin) Wakes() framework.Event { return framework.NodeTaints }

// Filter asks for the first taint that the pod does not tolerate.
func (p *Plugin) Filter(pod *snapshot.Pod) func(snapshot.Node) []string {
	tolerations := pod.Spec.Tolerations
	return func(n snapshot.Node) []string {
		for _, t := range n.Taints() {
			if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
				continue
			}
			if !Tolerated(tolerations, t) {
				return p.reason(t)
			}
		}
		return nil
	}
}

func (p *Plugin) reason(t corev1.Taint) []string {
	key := corev1.Taint{Key: t.Key, Value: t.Value}
	r := p.reasons[key]
	if r == nil {
		r = []string{fmt.Sprintf(reasonFormat, t.Key, t.Value)}
		p.reasons[key] = r
	}
	return r
}

// Score counts the taints that would rather have the pod elsewhere.
func (*Plugin) Score(pod *snapshot.Pod) func(snapshot.Node) int64 {
	tolerations := slices.DeleteFunc(slices.Clone(pod.Spec.Tolerations), func(t corev1.Toleration) bool {
		return t.Effect != "" && t.Effect != corev1.TaintEffectPreferNoSchedule
	})
	return func(n snapshot.Node) int64 {
		var count int64
		for _, t := range n.Taints() {
			if t.Effect == corev1.TaintEffectPreferNoSchedule && !Tolerated(tolerations, t) {
				count++
			}
		}
		return count
	}
}

// Normalize makes few taints a high score.
func (*Plugin) Normalize() framework.Normalize { return framework.Fewest }

// Tolerated says whether one of the tolerations covers the taint.
func Tolerated(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		switch t.Operator {
		case "", corev1.TolerationOpEqual:
			return t.Value == taint.Value
		case corev1.TolerationOpExists:
			return true
		}
		return false
	})
}
