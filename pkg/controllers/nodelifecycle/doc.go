// Package nodelifecycle detects nodes whose kubelet has stopped reporting: it sets
// their conditions to Unknown, taints them and marks their pods as not ready. It
// also keeps the taints that follow from a node's other conditions. Package
// tainteviction evicts the pods from nodes with NoExecute taints.
//
// The controller measures the time without a heartbeat by its own clock, from when it last saw
// a new heartbeat: neither a wrong clock of the node nor a restart of the controller makes a
// node unreachable.
package nodelifecycle
