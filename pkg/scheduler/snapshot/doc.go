// Package snapshot holds the cluster state that the scheduler reads, with a row per node and a
// column per quantity (allocatable, requested, host ports). The cost of an update depends on
// the size of the change, not of the cluster.
//
// A Snapshot is not safe for concurrent use.
package snapshot
