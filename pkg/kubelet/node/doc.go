// Package node registers the node, renews its Lease every few seconds, and writes
// its status when it changes and periodically.
package node
