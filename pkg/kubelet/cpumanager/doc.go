// Package cpumanager is the static policy of the kubelet's CPU manager. A container of
// a Guaranteed pod that requests a whole number of CPUs gets them for itself. All
// others share the rest, the shared pool, which always has a CPU: the reserved CPUs
// are never given away.
//
//	all CPUs
//	├── exclusive   of one container each
//	└── shared pool
//	    └── reserved   for the system and the kubelet, at least one; with
//	                   strict-cpu-reservation not part of the shared pool
//
// Run moves running containers of the shared pool away from CPUs that become
// exclusive, and back when these become free.
//
// https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
package cpumanager
