// Package endpointslice maintains each Service's EndpointSlices: its pods, and whether they
// are ready, serving or terminating. decide changes as few slices as possible, because every
// changed slice is sent to every node.
package endpointslice
