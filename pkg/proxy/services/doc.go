// Package services is the proxy's model: what a Service and its EndpointSlices
// mean for one node, port by port, without a word about iptables.
package services
