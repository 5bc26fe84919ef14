// Package nodeaffinity places pods on nodes that match their node selector and node affinity.
package nodeaffinity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const (
	reason      = "node(s) didn't match Pod's node affinity/selector"
	reasonAdded = "node(s) didn't match scheduler-enforced node affinity"
)

// Plugin filters by spec.nodeSelector and required node affinity and scores by
// preferred node affinity.
type Plugin struct {
	added *corev1.NodeAffinity
}

// New returns a plugin that applies added to all pods, besides their own affinity; nil adds
// nothing.
func New(added *corev1.NodeAffinity) (Plugin, error) {
	if added == nil {
		return Plugin{}, nil
	}
	if required := added.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		if _, err := nodeaffinity.NewNodeSelector(required); err != nil {
			return Plugin{}, err
		}
	}
	_, err := nodeaffinity.NewPreferredSchedulingTerms(added.PreferredDuringSchedulingIgnoredDuringExecution)
	return Plugin{added}, err
}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "NodeAffinity" }

// Reads returns spec.nodeSelector and spec.affinity.nodeAffinity.
func (Plugin) Reads(pod *snapshot.Pod) []any {
	if len(pod.Spec.NodeSelector) == 0 && pod.Spec.Affinity == nil {
		return nil
	}
	return []any{&pod.Spec.NodeSelector, affinity(pod)}
}

// affinity returns the pod's node affinity; an empty one if it has none.
func affinity(pod *snapshot.Pod) *corev1.NodeAffinity {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity
	}
	return &corev1.NodeAffinity{}
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (Plugin) EventsToRegister() framework.Event { return framework.NodeLabels }

// PreFilter skips pods without node selector and required affinity, unless some is added.
func (p Plugin) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	var added *nodeaffinity.NodeSelector
	if p.added != nil && p.added.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		added, _ = nodeaffinity.NewNodeSelector(p.added.RequiredDuringSchedulingIgnoredDuringExecution) // New has parsed it
	}
	if added == nil && len(pod.Spec.NodeSelector) == 0 && affinity(pod).RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	mismatch := framework.NewStatus(framework.UnschedulableAndUnresolvable, reason)
	enforced := framework.NewStatus(framework.UnschedulableAndUnresolvable, reasonAdded)
	return func(n snapshot.Node) *framework.Status {
		if added != nil && !added.Match(n.Object()) {
			return enforced
		}
		if ok, _ := required.Match(n.Object()); !ok { // a term that cannot be parsed matches no node
			return mismatch
		}
		return nil
	}
}

// PreScore skips pods without preferred affinity, unless some is added. The score of a node is
// the sum of the weights of the terms that match it.
func (p Plugin) PreScore(pod *snapshot.Pod) framework.NodeScore {
	preferred := affinity(pod).PreferredDuringSchedulingIgnoredDuringExecution
	if p.added != nil {
		preferred = slices.Concat(p.added.PreferredDuringSchedulingIgnoredDuringExecution, preferred)
	}
	if len(preferred) == 0 {
		return nil
	}
	var terms []*nodeaffinity.PreferredSchedulingTerms
	for i := range preferred {
		if term, err := nodeaffinity.NewPreferredSchedulingTerms(preferred[i : i+1]); err == nil { // as above
			terms = append(terms, term)
		}
	}
	return func(n snapshot.Node) int64 {
		var sum int64
		for _, t := range terms {
			sum += t.Score(n.Object())
		}
		return sum
	}
}

// Normalize gives the node with the highest sum MaxNodeScore.
func (Plugin) Normalize() framework.Normalize { return framework.Highest }
