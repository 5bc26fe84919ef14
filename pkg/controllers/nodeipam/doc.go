// Package nodeipam gives each node its part of the cluster's pod addresses,
// once: spec.podCIDR is never changed, and what a node has is read back from
// the nodes after a restart.
package nodeipam
