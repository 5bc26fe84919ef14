// Package balancer is load balancers without a machine of their own: a Service
// gets an address out of a pool, one of the nodes announces it on the local
// network (package announce), and the rules that kube-proxy has on every node
// anyway do the balancing. Providers that have addresses to give use it as
// their LoadBalancers.
//
// All state is in the API. The Lease of an address (package addresslease) is
// made before anybody is told of the address and named after it, so an address
// cannot be given twice, whoever else gives addresses at the same time. It is
// deleted after the address has fallen silent, so an address is never given
// anew while a node still answers for its former Service.
package balancer
