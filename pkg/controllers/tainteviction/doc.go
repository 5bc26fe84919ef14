// Package tainteviction evicts pods from nodes with NoExecute taints: pods without a matching
// toleration at once, pods with tolerationSeconds that long after the taint was added.
package tainteviction
