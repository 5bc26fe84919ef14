// Package service is the service controller: it has the provider make a load
// balancer for each Service of type LoadBalancer, and writes into the Service's
// status where it is. A Service with a loadBalancerClass is somebody else's.
//
// A finalizer goes onto the Service before the provider is asked for anything,
// and off it when the provider has removed everything: no load balancer
// outlives its Service, also where the daemon ends in between. The provider's
// calls may be repeated, so a daemon that starts makes sure of every load
// balancer once, and after that of those whose Service changes, or whose nodes
// do.
package service
