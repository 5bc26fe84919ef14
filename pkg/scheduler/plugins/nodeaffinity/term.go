package nodeaffinity

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/snapshot"
)

// nameField is the one field of a node that terms may look at.
const nameField = "metadata.name"

// term is a list of requirements, all of which must hold. One without any
// matches nothing, as upstream has it.
type term struct {
	labels []corev1.NodeSelectorRequirement
	fields []corev1.NodeSelectorRequirement
}

func termOf(t *corev1.NodeSelectorTerm) term {
	return term{t.MatchExpressions, t.MatchFields}
}

func (t term) matches(n snapshot.Node) bool {
	if len(t.labels) == 0 && len(t.fields) == 0 {
		return false
	}
	labels := n.Labels()
	for i := range t.labels {
		value, ok := labels[t.labels[i].Key]
		if !holds(&t.labels[i], value, ok) {
			return false
		}
	}
	for i := range t.fields {
		if t.fields[i].Key != nameField || !holds(&t.fields[i], n.Name(), true) {
			return false
		}
	}
	return true
}

func holds(r *corev1.NodeSelectorRequirement, value string, present bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return present && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !present || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return present
	case corev1.NodeSelectorOpDoesNotExist:
		return !present
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if !present || len(r.Values) != 1 {
			return false
		}
		have, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		bound, err := strconv.ParseInt(r.Values[0], 10, 64)
		if err != nil {
			return false
		}
		if r.Operator == corev1.NodeSelectorOpGt {
			return have > bound
		}
		return have < bound
	}
	return false
}
