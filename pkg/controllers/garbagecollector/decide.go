package garbagecollector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ownerState is what is known about the owner that a reference names.
type ownerState int

const (
	solid   ownerState = iota // it exists; or it cannot be told, which must be treated alike
	waiting                   // it stays only until its dependents are gone
	absent                    // it is gone
)

// verdict is what to do about an object that is not being deleted.
type verdict struct {
	Delete metav1.DeletionPropagation // "" to keep it
	Forget []types.UID                // references to take away
	// Unblock takes blockOwnerDeletion from all its references first: in a
	// cycle of owners everybody would wait for everybody.
	Unblock bool
}

// decide looks at an object's owners, whose states are given in the order of
// its references. One good owner keeps an object; the others are forgotten.
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

// policy is how the object's own finalizers want its dependents treated.
func (n *node) policy() metav1.DeletionPropagation {
	switch {
	case n.orphan:
		return metav1.DeletePropagationOrphan
	case n.foreground:
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}
