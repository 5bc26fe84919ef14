// Package route maintains a provider's routes to the pods of each node, for clusters whose pod
// network has none (kube-proxy --pod-network=cloud). The condition NetworkUnavailable of a
// node is true while there is no route to its pods; it keeps pods off the node.
package route
