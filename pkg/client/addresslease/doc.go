// Package addresslease defines the Lease that decides which node announces an
// address of a load balancer. There is one Lease for each address, in kube-system.
// The load balancer controller (package balancer, in cloud-controller-manager)
// creates and deletes it; the nodes (package announce, in kube-proxy) hold it, one
// at a time. Only an address with a Lease is announced by this cluster: an address
// that another cloud gave to a Service has none.
//
// A Lease is held for a bounded time, measured by the holder's own clock: a holder
// that has not renewed within Duration of sending its last renewal has stopped
// announcing. The other nodes count the same time from when they first saw that
// renewal, which is later, and add a margin: see Watch. So no node announces the
// address of a Lease that Watch reports as free. The machines' clocks need not agree.
package addresslease
