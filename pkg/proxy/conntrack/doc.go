// Package conntrack deletes tracked flows that the current rules would not create:
// UDP flows to removed endpoints, because the kernel otherwise sends a client's
// datagrams to the old address for as long as the client sends, and flows to a
// Service's address from before it had rules, which get no answer.
package conntrack
