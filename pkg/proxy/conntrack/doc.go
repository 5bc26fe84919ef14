// Package conntrack ends flows that go to endpoints which are no more. UDP
// knows no end of a connection: without this the kernel sends a client's
// datagrams to a dead address for as long as the client keeps talking.
package conntrack
