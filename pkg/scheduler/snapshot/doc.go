// Package snapshot is the cluster as the scheduler sees it: a row a node and a
// column a quantity (what it can give, what its pods asked for), brought up to
// date in time that follows the change, not the cluster. It also says what a
// pod asks for, and which pods are of the same shape.
//
// A Snapshot is not safe for concurrent use: its owner locks.
package snapshot
