// Package services is the proxy's model: it computes from a Service and its
// EndpointSlices what one node serves, port by port, independently of iptables.
package services
