// Package conntrack ends tracked flows that our rules would not make any more:
// UDP to endpoints that are gone (UDP knows no end of a connection: without
// this the kernel sends a client's datagrams to a dead address for as long as
// the client keeps talking), and flows to a Service's address from before there
// were rules for it, which nobody answers.
package conntrack
