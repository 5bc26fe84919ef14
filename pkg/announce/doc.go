// Package announce has the addresses of load balancers answered on the local
// network: of all nodes that can, one puts the address on its interface, and
// the kernel answers who asks for it, by ARP or neighbour discovery. It runs in
// kube-proxy's process, whose rules do the balancing once packets arrive.
//
// An announcer looks after every address that has a Lease (package
// addresslease). Which node announces is settled by who writes that Lease:
//
//	free ──(my turn, written)──▶ held ──(renewed)──▶ held
//	 ▲                            │
//	 └── released, or run out ◀───┘
//
// Whose turn it is follows from what all see: the nodes that may (ready, not
// excluded from load balancers, and with a ready endpoint of their own where
// the Service's externalTrafficPolicy is Local), in an order that is another
// one for each address, so that addresses are spread. The first acts at once,
// the others a little later each. Nothing depends on that order being the same
// everywhere: it only keeps nodes from trying all at once.
//
// # Never two at once
//
// A node has the address on its interface only until a moment that it counts
// from before it sent the renewal that was granted last, by its own monotonic
// clock; Duration less a slack. The kernel is told that moment as the address's
// lifetime, so it holds also for a kube-proxy that hangs, is stopped or has
// crashed. Another node takes the address by replacing the very version of the
// Lease that it has watched stand still for Duration and a margin, counted from
// when it first saw it. Had the holder renewed since, the replacement would
// fail; a view that is behind makes a node wait longer, or fail, never act
// early. A holder that gives up takes the address from the interface first and
// writes the release after that. Whoever takes an address from one Service and
// gives it to another waits for the same silence before it deletes the Lease.
//
// What this rests on: clocks of two machines may show any time but must run at
// the same speed, within two percent. A machine that is suspended as a whole,
// its kernel's timers too, and wakes up, answers until its announcer's next
// step, at most a second later. The one who took over says so on the network
// again and again, which puts right what a neighbour learned in that second.
//
// # What it costs
//
// While the API cannot be reached nobody can take an address and nobody keeps
// one for longer than Duration: a silence of the API of up to five seconds goes
// unnoticed, as when one of three control planes is lost. Every address costs a
// write every one and a half seconds.
//
// # Ends
//
// A kube-proxy that is stopped leaves its addresses in place for a little
// longer than usual, so that its successor finds them: an upgrade of the
// daemon interrupts nothing. When the machine itself goes down they are
// released at once, and another node answers within a fraction of a second.
package announce
