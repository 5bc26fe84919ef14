// Package balancer implements load balancers without a machine of their own: a Service gets
// an address from a pool, one of the nodes announces the address on the local network
// (package announce), and kube-proxy's rules, which every node has, do the balancing.
// Providers with address pools use it as their LoadBalancers.
//
// All state is in the API. The Lease of an address (package addresslease) is created before
// the address is published, and its name is derived from the address, so an address cannot
// be allocated twice, even if several processes allocate at the same time. It is deleted
// after all nodes have stopped announcing the address, so an address is never reallocated
// while a node still answers for its former Service.
package balancer
