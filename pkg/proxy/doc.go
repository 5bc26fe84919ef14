// Package proxy implements kube-proxy, the node's network agent: it watches Services
// and EndpointSlices, applies the rules for them to the kernel, and reports in a
// Lease which revision its rules reflect. The pod network (package podnetwork) runs
// beside it, and the proxy applies its rules in the same transactions.
package proxy
