// Package proxy is kube-proxy, the node's network agent: it reads Services and
// EndpointSlices, keeps the kernel's rules to what they say, and tells the
// cluster how far its rules have come. The pod network (package podnetwork)
// runs beside it and its rules travel with the proxy's.
package proxy
