// Package baremetal is the provider for machines without a management API. A file
// (v1alpha1.BareMetalCloud) contains the zones and addresses of nodes, and the addresses for
// load balancers, each of which one node announces on the network (package balancer).
//
// A machine of this provider always exists: a machine that does not answer may come back. An
// administrator deletes its Node.
package baremetal
