// Package node keeps Nodes and the provider's instances in step, with two
// controllers. One meets each node that a kubelet has registered with
// --cloud-provider=external: it says which machine the node is, where it is
// and at which addresses, and takes the taint away that kept pods off till
// then; the addresses it looks at again from time to time. The other looks
// after nodes that are not ready: one whose machine is gone is deleted, one
// whose machine is off is tainted until it is ready again.
//
// Both leave nodes alone that are not the provider's: those that neither wait
// to be met nor have an ID of its own.
package node
