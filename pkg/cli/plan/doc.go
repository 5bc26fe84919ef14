// Package plan says where pods would land, by the scheduler's own library on a
// snapshot of the cluster. It is pure: package cli reads the cluster, and
// nothing is written.
//
// A Cluster holds lists of objects. A Simulation schedules pods on it, one
// after the other, as the scheduler would: by priority, with preemption, and
// with the pods that already wait.
package plan
