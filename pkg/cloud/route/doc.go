// Package route keeps a provider's routes to the pods of each node, for
// clusters whose pod network lays none (kube-proxy --pod-network=cloud). It
// says on each node whether there is a route to its pods: by the condition
// NetworkUnavailable, which keeps pods off while there is none.
package route
