// Package node keeps Nodes and the provider's instances in step, with two controllers. One
// initializes each node that a kubelet registers with --cloud-provider=external: it sets the
// provider ID, the zone and the addresses and removes the taint that keeps pods off until
// then; it updates the addresses periodically. The other checks nodes that are not ready: it
// deletes a node whose instance no longer exists, and taints one whose instance is shut down
// until it is ready again.
//
// Both ignore other nodes: those that neither wait for initialization nor have a provider ID
// of the provider.
package node
