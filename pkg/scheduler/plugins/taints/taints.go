// Package taints keeps pods off nodes with taints that they do not tolerate.
package taints

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const reasonFormat = "node(s) had untolerated taint {%s: %s}"

// Plugin filters by taints with effect NoSchedule and NoExecute and scores by those with
// PreferNoSchedule.
type Plugin struct {
	statuses map[corev1.Taint]*framework.Status // one per taint instead of one per node
}

// New returns a plugin. It is not safe for concurrent use.
func New() *Plugin { return &Plugin{statuses: map[corev1.Taint]*framework.Status{}} }

// Name is upstream's name of the plugin.
func (*Plugin) Name() string { return "TaintToleration" }

// Reads returns the pod's tolerations.
func (*Plugin) Reads(pod *snapshot.Pod) []any { return []any{&pod.Spec.Tolerations} }

// EventsToRegister returns the events after which a rejected pod may fit.
func (*Plugin) EventsToRegister() framework.Event { return framework.NodeTaints }

// PreFilter skips no pod.
func (p *Plugin) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	tolerations := pod.Spec.Tolerations
	var last struct { // most nodes with taints have the same ones
		key, value string
		status     *framework.Status
	}
	return func(n snapshot.Node) *framework.Status {
		t := Untolerated(n.Taints(), tolerations)
		switch {
		case t == nil:
			return nil
		case last.status == nil || last.key != t.Key || last.value != t.Value:
			last.key, last.value, last.status = t.Key, t.Value, p.status(*t)
		}
		return last.status
	}
}

func (p *Plugin) status(t corev1.Taint) *framework.Status {
	key := corev1.Taint{Key: t.Key, Value: t.Value}
	s := p.statuses[key]
	if s == nil {
		s = framework.NewStatus(framework.UnschedulableAndUnresolvable, fmt.Sprintf(reasonFormat, t.Key, t.Value))
		p.statuses[key] = s
	}
	return s
}

// PreScore skips no pod. The score of a node is the number of its
// PreferNoSchedule taints that the pod does not tolerate.
func (*Plugin) PreScore(pod *snapshot.Pod) framework.NodeScore {
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

// Normalize gives nodes with few such taints a high score.
func (*Plugin) Normalize() framework.Normalize { return framework.Lowest }

// Untolerated returns the first NoSchedule or NoExecute taint that none of the tolerations
// tolerates; nil if there is none.
func Untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		t := &taints[i]
		if (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute) && !Tolerated(tolerations, *t) {
			return t
		}
	}
	return nil
}

// Tolerated reports whether one of the tolerations matches the taint.
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
