// Package nodeaffinity sends pods to the nodes their selectors and affinities
// name.
package nodeaffinity

import (
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const reason = "node(s) didn't match Pod's node affinity/selector"

// Plugin filters by nodeSelector and required node affinity and scores by
// preferred node affinity.
type Plugin struct{}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "NodeAffinity" }

// Wakes says what could change an answer.
func (Plugin) Wakes() framework.Event { return framework.NodeLabels }

// Filter asks whether the node is one of those the pod wants.
func (Plugin) Filter(pod *snapshot.Pod) func(snapshot.Node) []string {
	selector := pod.Spec.NodeSelector
	var terms []term
	required := false
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		required = true
		for i := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			terms = append(terms, termOf(&a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[i]))
		}
	}
	if len(selector) == 0 && !required {
		return nil
	}
	no := []string{reason}
	return func(n snapshot.Node) []string {
		labels := n.Labels()
		for k, v := range selector {
			if have, ok := labels[k]; !ok || have != v {
				return no
			}
		}
		if required && !matchesAny(terms, n) {
			return no
		}
		return nil
	}
}

func matchesAny(terms []term, n snapshot.Node) bool {
	for _, t := range terms {
		if t.matches(n) {
			return true
		}
	}
	return false
}

// Score adds up the weights of the preferred terms that the node matches.
func (Plugin) Score(pod *snapshot.Pod) func(snapshot.Node) int64 {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil
	}
	type preferred struct {
		term
		weight int64
	}
	var list []preferred
	for i := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		p := &a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
		list = append(list, preferred{termOf(&p.Preference), int64(p.Weight)})
	}
	return func(n snapshot.Node) int64 {
		var sum int64
		for _, p := range list {
			if p.matches(n) {
				sum += p.weight
			}
		}
		return sum
	}
}

// Normalize makes the greatest sum the highest score.
func (Plugin) Normalize() framework.Normalize { return framework.Most }
