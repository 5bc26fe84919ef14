package garbagecollector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ownerState is the state of the owner in an owner reference.
type ownerState int

const (
	solid   ownerState = iota // exists, or its existence is unknown
	waiting                   // being deleted in the foreground: it waits for its dependents
	absent                    // does not exist
)

// verdict is the action for an object that is not being deleted.
type verdict struct {
	Delete metav1.DeletionPropagation // "" to keep it
	Forget []types.UID                // owners whose references to remove
	// Unblock clears blockOwnerDeletion of all its references first: in a cycle
	// of owners, all would wait for each other.
	Unblock bool
}

// decide returns the action for an object whose owners have these states, in the order of its
// references. One existing owner keeps the object; references to the others are removed.
func decide(n *node, states []ownerState, dependents func() []*node) verdict {
	var v verdict
	some := map[ownerState]bool{}
	for i, s := range states {
		some[s] = true
		if s != solid {
			v.Forget = append(v.Forget, n.owners[i].UID)
		}
	}
	switch {
	case some[solid] || len(states) == 0:
		return v
	case some[waiting]:
		v = verdict{Delete: n.policy()}
		for _, d := range dependents() {
			v.Delete = metav1.DeletePropagationForeground
			v.Unblock = v.Unblock || d.waits()
		}
		return v
	default:
		return verdict{Delete: n.policy()}
	}
}

// policy returns the deletion policy that the object's finalizers request.
func (n *node) policy() metav1.DeletionPropagation {
	switch {
	case n.orphan:
		return metav1.DeletePropagationOrphan
	case n.foreground:
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}
