// Package podnetwork gives the pods of a node their network: the CNI
// configuration for the node's pod CIDR, routes to the pod CIDRs of the other
// nodes on the same link, and the rules that let pods' packets through and hide
// them behind the node when they leave the cluster. kube-proxy runs it.
package podnetwork
