package hardware

import (
	"maps"
	"slices"

	"k8s.io/utils/cpuset"
)

// CPU is a logical CPU: a hardware thread. Cores, caches and sockets are named by
// the lowest CPU that belongs to them, so that the names are unique on the machine.
type CPU struct {
	ID     int
	Core   int
	Cache  int // of the third level; the socket on machines without one
	Socket int
	Node   int // the id of the NUMA node
}

// Node is a NUMA node. A machine without NUMA has one, with the id 0.
type Node struct {
	ID        int
	CPUs      cpuset.CPUSet
	Memory    int64           // bytes
	HugePages map[int64]int64 // bytes by page size in bytes
	Distances map[int]int     // to the other nodes and itself; nil: unknown
}

// Machine is the hardware. Its fields must not be changed.
type Machine struct {
	CPUs  map[int]CPU // those that are online and may be used
	Nodes map[int]Node
}

// All returns the ids of all CPUs.
func (m Machine) All() cpuset.CPUSet {
	return cpuset.New(slices.Collect(maps.Keys(m.CPUs))...)
}

// NodeIDs returns the ids of the NUMA nodes, sorted.
func (m Machine) NodeIDs() []int { return slices.Sorted(maps.Keys(m.Nodes)) }

// Groups splits CPUs by what key says of them: by cores, caches, sockets or nodes.
func (m Machine) Groups(cpus cpuset.CPUSet, key func(CPU) int) map[int]cpuset.CPUSet {
	ids := map[int][]int{}
	for _, id := range cpus.UnsortedList() {
		k := key(m.CPUs[id])
		ids[k] = append(ids[k], id)
	}
	out := map[int]cpuset.CPUSet{}
	for k, list := range ids {
		out[k] = cpuset.New(list...)
	}
	return out
}

// ByCore, ByCache, BySocket and ByNode are the keys of Groups.
func ByCore(c CPU) int   { return c.Core }
func ByCache(c CPU) int  { return c.Cache }
func BySocket(c CPU) int { return c.Socket }
func ByNode(c CPU) int   { return c.Node }

// ThreadsPerCore returns how many CPUs a core has, the most where cores differ;
// at least 1.
func (m Machine) ThreadsPerCore() int {
	most := 1
	for _, core := range m.Groups(m.All(), ByCore) {
		most = max(most, core.Size())
	}
	return most
}
