// Package taints keeps pods off nodes with taints that they do not tolerate.
package taints

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const reasonFormat = "node(s) had untolerated taint {%s: %s}"

// Plugin filters by taints with effect NoSchedule and NoExecute and scores by those with
// PreferNoSchedule.
type Plugin struct {
	mu       sync.Mutex
	statuses map[corev1.Taint]*framework.Status // one per taint instead of one per node
}

// New returns a plugin.
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
	var last atomic.Pointer[rejection] // most nodes with taints have the same ones
	return func(n snapshot.Node) *framework.Status {
		t := Untolerated(n.Taints(), tolerations)
		if t == nil {
			return nil
		}
		r := last.Load()
		if r == nil || r.key != t.Key || r.value != t.Value {
			r = &rejection{t.Key, t.Value, p.status(*t)}
			last.Store(r)
		}
		return r.status
	}
}

// rejection is the status for nodes with a taint.
type rejection struct {
	key, value string
	status     *framework.Status
}

func (p *Plugin) status(t corev1.Taint) *framework.Status {
	key := corev1.Taint{Key: t.Key, Value: t.Value}
	p.mu.Lock()
	defer p.mu.Unlock()
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
