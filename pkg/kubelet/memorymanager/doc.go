// Package memorymanager is the static policy of the kubelet's memory manager. A
// container of a Guaranteed pod gets its memory and huge pages from certain NUMA nodes:
// from one or, if that does not suffice, from a group. A node belongs to one group at a
// time, so that the sums of a group say what is free in it.
//
// https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/
package memorymanager
