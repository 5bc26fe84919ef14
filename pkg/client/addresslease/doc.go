// Package addresslease is the Lease by which the nodes agree who announces an
// address of a load balancer. There is one for each address, in kube-system.
// Who provides load balancers (package balancer, in cloud-controller-manager)
// makes and deletes it; the nodes (package announce, in kube-proxy) hold it,
// one at a time. That there is a Lease is what says that an address is this
// cluster's to announce: an address that some other cloud gave to a Service
// has none.
//
// Holding is bounded by time, and by the holder's own clock: a holder that has
// not renewed within Duration of the moment at which it sent its last renewal
// has stopped announcing. Everybody else counts the same time from when they
// first saw that renewal, which is later, and adds a margin: Watch does. So a
// Lease that Watch calls free is announced by nobody. The clocks of the
// machines need not agree.
package addresslease
