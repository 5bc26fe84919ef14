// Package dynamicresources places pods where there are devices for their ResourceClaims, and
// allocates the devices.
//
// A pod needs all its claims. A claim that is allocated restricts it to the nodes that can
// use the devices; for the others, package allocation searches devices on each node. When a
// node is chosen, the plugin plans the allocation: from then on no other pod gets the
// devices. Before the pod is bound, it writes the allocation and the reservation for the pod
// into the claim's status. A claim with an allocation has a finalizer.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package dynamicresources
