// Package endpointslice keeps each Service's EndpointSlices: who stands behind
// it, ready, serving or on the way out. decide changes as few slices as it can;
// every one it touches goes to every node.
package endpointslice
