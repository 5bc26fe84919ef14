// Package drain empties a node before work is done on it: it takes no new
// pods, and those that another node could run are evicted, so that a Service
// with several endpoints is never left without a ready one.
//
// It needs no more rights than the node itself has: to see the nodes and
// EndpointSlices (as its kube-proxy does), and to see, evict and mark what is
// its own (as its kubelet does).
package drain
