// Package topology is the kubelet's topology manager. Resources such as CPUs, memory
// and devices are near certain NUMA nodes: their managers, the providers, say on which
// nodes they can serve a container. The topology manager merges these hints, refuses
// a pod if the policy requires an alignment that is not possible, and makes the
// providers allocate.
//
// https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/
package topology
