// Package framework decides where a pod goes: it asks filters which nodes can
// run it and scorers which of those suits best. All nodes are asked; pods of
// one shape share the answers, and only the nodes that changed since are asked
// again.
package framework
