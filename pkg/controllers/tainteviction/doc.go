// Package tainteviction deletes pods from nodes with NoExecute taints: those
// that do not tolerate them at once, those that tolerate them for a while after
// that while, counted from when the taint was added.
package tainteviction
