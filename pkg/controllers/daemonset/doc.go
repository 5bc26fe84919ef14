// Package daemonset runs one pod of each DaemonSet on every node that is eligible for it. The
// pods are bound by the scheduler: their node affinity names the node. A rolling update
// replaces the pods of an old template node by node.
package daemonset
