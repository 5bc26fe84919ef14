// Package node speaks for the node: it registers it, says every few seconds by
// a Lease that it lives, and reports what it has and how it is, when that
// changes and from time to time.
package node
