package cpumanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/hardware"
)

// taker chooses CPUs that are near each other. It changes nothing.
type taker struct {
	machine hardware.Machine
	options Options
}

// key says to which group of a level a CPU belongs.
type key = func(hardware.CPU) int

// take returns n of the free CPUs.
func (t taker) take(free cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
	if free.Size() < n {
		return cpuset.CPUSet{}, fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, free.Size())
	}
	if t.options.SpreadNodes {
		if out, ok := t.spreadNodes(free, n); ok {
			return out, nil
		}
	}
	return t.pack(free, n), nil
}

// levels returns how the machine is divided into parts of several cores, the largest
// parts first.
func (t taker) levels() []key {
	levels := []key{hardware.BySocket, hardware.ByNode}
	if len(t.machine.Groups(t.machine.All(), hardware.BySocket)) > len(t.machine.Nodes) {
		slices.Reverse(levels)
	}
	if t.options.Caches {
		levels = append(levels, hardware.ByCache)
	}
	return levels
}

// pack takes n of the free CPUs from as few parts of the machine as possible.
func (t taker) pack(free cpuset.CPUSet, n int) cpuset.CPUSet {
	taken := cpuset.New()
	for _, level := range t.levels() {
		whole, part := t.narrow(free, n-taken.Size(), level)
		taken, free = taken.Union(whole), part
	}
	if t.options.SpreadCores {
		return taken.Union(t.spreadCores(free, n-taken.Size()))
	}
	whole, core := t.narrow(free, n-taken.Size(), hardware.ByCore)
	taken = taken.Union(whole)
	return taken.Union(first(core, n-taken.Size()))
}

// narrow takes what is free in the part with the most free CPUs, as long as no part has
// enough for the rest of n. The rest is to come from one part: that with the fewest
// free CPUs that suffice, which keeps large parts whole.
func (t taker) narrow(free cpuset.CPUSet, n int, level key) (taken, part cpuset.CPUSet) {
	taken = cpuset.New()
	for n > 0 {
		parts := t.parts(free, level)
		if i := slices.IndexFunc(parts, func(p cpuset.CPUSet) bool { return p.Size() >= n }); i >= 0 {
			return taken, parts[i]
		}
		most := parts[len(parts)-1].Size()
		largest := parts[slices.IndexFunc(parts, func(p cpuset.CPUSet) bool { return p.Size() == most })]
		taken, free, n = taken.Union(largest), free.Difference(largest), n-most
	}
	return taken, free
}

// parts returns the free CPUs of each part, smaller sets first, then by the lowest id.
func (t taker) parts(free cpuset.CPUSet, level key) []cpuset.CPUSet {
	out := slices.Collect(maps.Values(t.machine.Groups(free, level)))
	slices.SortFunc(out, func(a, b cpuset.CPUSet) int {
		return cmp.Or(cmp.Compare(a.Size(), b.Size()), cmp.Compare(a.List()[0], b.List()[0]))
	})
	return out
}

// first returns the n CPUs with the lowest ids.
func first(cpus cpuset.CPUSet, n int) cpuset.CPUSet { return cpuset.New(cpus.List()[:n]...) }

// spreadCores takes one CPU of each core after the other, then the second ones.
func (t taker) spreadCores(free cpuset.CPUSet, n int) cpuset.CPUSet {
	taken := cpuset.New()
	for n > 0 {
		for _, core := range byLowest(t.parts(free, hardware.ByCore)) {
			if n == 0 {
				break
			}
			one := first(core, 1)
			taken, free, n = taken.Union(one), free.Difference(one), n-1
		}
	}
	return taken
}

func byLowest(parts []cpuset.CPUSet) []cpuset.CPUSet {
	slices.SortFunc(parts, func(a, b cpuset.CPUSet) int { return cmp.Compare(a.List()[0], b.List()[0]) })
	return parts
}

// spreadNodes takes as many CPUs from each of as few NUMA nodes as suffice. It returns
// false if one node suffices or if the nodes' free CPUs differ too much.
func (t taker) spreadNodes(free cpuset.CPUSet, n int) (cpuset.CPUSet, bool) {
	parts := t.parts(free, hardware.ByNode)
	slices.SortFunc(parts, func(a, b cpuset.CPUSet) int {
		return cmp.Or(cmp.Compare(b.Size(), a.Size()), cmp.Compare(a.List()[0], b.List()[0]))
	})
	if len(parts) == 0 || parts[0].Size() >= n {
		return cpuset.CPUSet{}, false
	}
	unit := 1
	if t.options.FullCores {
		unit = t.machine.ThreadsPerCore()
	}
	for count := 2; count <= len(parts); count++ {
		if out, ok := t.spreadOver(parts[:count], n, unit); ok {
			return out, true
		}
	}
	return cpuset.CPUSet{}, false
}

// spreadOver takes n CPUs from the parts, from none more than a unit more than from
// another. It returns false if that is not possible.
func (t taker) spreadOver(parts []cpuset.CPUSet, n, unit int) (cpuset.CPUSet, bool) {
	share := n / unit / len(parts) * unit
	rest := n - share*len(parts)
	out := cpuset.New()
	for _, p := range parts {
		size := share
		if extra := min(unit, rest); p.Size() >= share+extra {
			size, rest = share+extra, rest-extra
		}
		if p.Size() < size {
			return out, false
		}
		out = out.Union(t.pack(p, size))
	}
	return out, rest == 0
}
