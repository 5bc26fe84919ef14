// Package endpointslicemirroring mirrors the Endpoints of Services without a selector, which
// users write, to EndpointSlices, for clients that read only slices, such as kube-proxy and
// the cluster DNS server.
package endpointslicemirroring
