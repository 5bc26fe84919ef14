// Package service is the service controller: the provider creates a load balancer for each
// Service of type LoadBalancer, and the controller writes its address to the Service's
// status. It ignores Services with a loadBalancerClass.
//
// The controller adds a finalizer to the Service before it calls the provider, and removes it
// after the provider has deleted the load balancer, so no load balancer outlives its Service,
// even if the daemon ends in between. The provider's calls are idempotent: after a start the
// controller ensures every load balancer once, and then those whose Service or nodes change.
package service
