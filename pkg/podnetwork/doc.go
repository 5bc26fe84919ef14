// Package podnetwork configures the network of a node's pods: the CNI configuration
// for the node's pod CIDR, which gives each pod its own link to the node; routes to
// the pods of other nodes, directly if the nodes share a link or else through a
// VXLAN; and rules that accept pod traffic and masquerade it when it leaves the
// cluster. kube-proxy runs it.
package podnetwork
