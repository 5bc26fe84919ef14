// Package podnetwork gives the pods of a node their network: the CNI
// configuration for the node's pod CIDR, by which each pod has a link of its own
// to the node; the way to the pods of the other nodes, by routes where nodes
// share a link and through a VXLAN otherwise; and the rules that let pods'
// packets through and hide them behind the node when they leave the cluster.
// kube-proxy runs it.
package podnetwork
