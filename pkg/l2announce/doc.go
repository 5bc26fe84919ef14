// Package l2announce announces the addresses of load balancers on the local
// network: one of the nodes that can serve an address adds it to its interface, and
// the kernel answers ARP and neighbour discovery for it. It runs in the kube-proxy
// process, whose rules balance the traffic.
//
// An Announcer handles every address that has a Lease (package addresslease). The
// node that holds the Lease announces the address:
//
//	free ──(my turn, written)──▶ held ──(renewed)──▶ held
//	 ▲                            │
//	 └── released, or run out ◀───┘
//
// Every node computes the order of the candidates: nodes that are ready, not excluded
// from load balancers and, if the Service's externalTrafficPolicy is Local, have a
// ready endpoint. The order differs for each address, so that addresses are spread
// over the nodes. The first candidate acts at once, each other one a little later.
// Correctness does not depend on all nodes computing the same order: it only keeps
// them from trying all at once.
//
// # One node at a time
//
// A node has the address on its interface only until Duration less a slack after it
// sent the last successful renewal, by its own monotonic clock. The kernel gets this
// as the lifetime of the address, so that it also holds for a kube-proxy that hangs,
// is stopped or has crashed. Another node takes the address by replacing exactly the
// version of the Lease that it has seen unchanged for Duration and a margin, counted
// from when it first saw that version. If the holder has renewed since, the
// replacement fails. An informer that is behind makes a node wait longer or fail, but
// never act early. A holder that gives up removes the address from the interface
// first and writes the release after that. A controller that takes an address from
// one Service and gives it to another waits for the same time before it deletes the
// Lease.
//
// This relies on the clocks of two machines running at the same speed, within two
// percent; they need not show the same time. A machine that is suspended as a whole,
// with its kernel's timers, and resumes answers until its announcer's next step, at
// most a second later. The new holder announces the address repeatedly, which
// corrects what neighbours learned in that second.
//
// # Cost
//
// While the API cannot be reached, no node can take an address and none keeps one
// for longer than Duration: an API outage of up to five seconds has no effect, as
// when one of three control planes is lost. Each address costs one write every one
// and a half seconds.
//
// # Shutdown
//
// A kube-proxy that is stopped leaves its addresses in place for a little longer than
// usual, so that its successor adopts them: an upgrade of the daemon interrupts
// nothing. When the machine itself shuts down, kube-proxy releases them at once, and
// another node answers within a fraction of a second.
package l2announce
