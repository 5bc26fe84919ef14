// Package drain evicts the pods of a node that another node could run. It
// evicts them one after the other where needed, so that a Service with several
// endpoints always has a ready one.
//
// It needs no more rights than the daemons of the node have: to read the nodes
// and EndpointSlices (as kube-proxy does), and to read and evict the node's
// pods and patch the node (as the kubelet does).
package drain
