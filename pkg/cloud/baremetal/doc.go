// Package baremetal is the provider of machines that nobody manages. What there
// is to know of them stands in a file (v1alpha1.BareMetalCloud): zones and
// addresses of nodes, and the addresses that load balancers may have on the
// network, which one node each announces (package balancer).
//
// A machine of this provider always exists: that one does not answer says
// nothing about whether it will come back. Its Node is deleted by a person.
package baremetal
