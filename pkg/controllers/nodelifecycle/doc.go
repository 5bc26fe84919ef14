// Package nodelifecycle notices nodes that have gone silent: it says so in
// their conditions, taints them and marks their pods as not ready. It also
// keeps the taints that follow from a node's other conditions. What a NoExecute
// taint does to pods is package tainteviction's.
//
// Silence is measured by our own clock, from when a new heartbeat was last
// seen: neither a node with a wrong clock nor our own start makes one silent.
package nodelifecycle
