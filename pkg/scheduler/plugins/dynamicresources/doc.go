// Package dynamicresources places pods where there are devices for their ResourceClaims, and
// allocates the devices.
//
// A pod needs all its claims. A claim that is allocated restricts it to the nodes that can
// use the devices; for the others, package allocation searches devices on each node. When a
// node is chosen, the plugin plans the allocation: from then on no other pod gets the
// devices. Before the pod is bound, it writes the allocation and the reservation for the pod
// into the claim's status. A claim with an allocation has a finalizer.
//
// Containers may ask for devices by the name of an extended resource, too. On a node that does not have
// the resource itself the plugin plans a claim for it, creates it before the pod is bound, and names
// it in the pod's status, where the kubelet looks for it.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package dynamicresources
