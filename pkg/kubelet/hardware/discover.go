package hardware

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Paths are the places of the kernel's files.
type Paths struct {
	Sys     string // the mount point of sysfs
	Cgroups string // the mount point of the cgroup hierarchy, which may bound the whole node
	Proc    string // the mount point of procfs
}

// Kernel returns the usual places.
func Kernel() Paths { return Paths{Sys: "/sys", Cgroups: "/sys/fs/cgroup", Proc: "/proc"} }

// Discover describes the machine. CPUs that are offline or that the node's own
// cgroup excludes do not appear.
func Discover(p Paths) (Machine, error) {
	usable, err := p.usable()
	if err != nil {
		return Machine{}, fmt.Errorf("discover the machine's CPUs: %w", err)
	}
	m := Machine{CPUs: map[int]CPU{}, Nodes: map[int]Node{}}
	if err := p.nodes(m.Nodes, usable); err != nil {
		return Machine{}, fmt.Errorf("discover the machine's NUMA nodes: %w", err)
	}
	for _, n := range m.Nodes {
		for _, id := range n.CPUs.UnsortedList() {
			c, err := p.cpu(id, n.ID, usable)
			if err != nil {
				return Machine{}, fmt.Errorf("discover CPU %d: %w", id, err)
			}
			m.CPUs[id] = c
		}
	}
	if len(m.CPUs) != usable.Size() {
		return Machine{}, fmt.Errorf("discover the machine's CPUs: %s are usable, but the NUMA nodes have %s", usable, m.All())
	}
	return m, nil
}

// usable returns the CPUs that are online and that the node's cgroup contains.
func (p Paths) usable() (cpuset.CPUSet, error) {
	online, err := list(p.Sys, "devices/system/cpu/online")
	if err != nil {
		return online, err
	}
	for _, name := range []string{"cpuset.cpus.effective", "cpuset/cpuset.effective_cpus", "cpuset/cpuset.cpus"} { // cgroup v2, v1
		own, err := list(p.Cgroups, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && own.IsEmpty() {
			continue
		}
		if err != nil {
			return own, err
		}
		online = online.Intersection(own)
		break
	}
	if online.IsEmpty() {
		return online, errors.New("no CPU is usable")
	}
	return online, nil
}

// nodes adds the NUMA nodes that have a usable CPU or memory.
func (p Paths) nodes(out map[int]Node, usable cpuset.CPUSet) error {
	ids, err := list(p.Sys, "devices/system/node/online")
	if errors.Is(err, fs.ErrNotExist) { // a kernel without NUMA
		total, err := total(filepath.Join(p.Proc, "meminfo"))
		out[0] = Node{CPUs: usable, Memory: total, HugePages: hugePages(filepath.Join(p.Sys, "kernel/mm/hugepages"))}
		return err
	}
	if err != nil {
		return err
	}
	for _, id := range ids.List() {
		dir := filepath.Join(p.Sys, "devices/system/node", "node"+strconv.Itoa(id))
		cpus, err := list(dir, "cpulist")
		if err != nil {
			return err
		}
		n := Node{ID: id, CPUs: cpus.Intersection(usable), HugePages: hugePages(filepath.Join(dir, "hugepages"))}
		if n.Memory, err = total(filepath.Join(dir, "meminfo")); err != nil {
			return err
		}
		if n.CPUs.IsEmpty() && n.Memory == 0 {
			continue
		}
		if n.Distances, err = distances(dir, ids.List()); err != nil {
			return err
		}
		out[id] = n
	}
	return nil
}

// cpu describes one CPU. A file that the kernel does not have means a CPU without
// siblings: a core of its own, the only socket of its node.
func (p Paths) cpu(id, node int, usable cpuset.CPUSet) (CPU, error) {
	dir := filepath.Join(p.Sys, "devices/system/cpu", "cpu"+strconv.Itoa(id))
	c := CPU{ID: id, Node: node}
	var errs [3]error
	c.Core, errs[0] = lowest(dir, id, usable, "topology/core_cpus_list", "topology/thread_siblings_list")
	c.Socket, errs[1] = lowest(dir, usable.List()[0], usable, "topology/package_cpus_list", "topology/core_siblings_list")
	c.Cache, errs[2] = lowest(dir, c.Socket, usable, p.cache(dir))
	return c, errors.Join(errs[:]...)
}

// cache returns the file below dir with the CPUs that share the cache of the third
// level; a name that does not exist if the CPU has none.
func (p Paths) cache(dir string) string {
	levels, _ := filepath.Glob(filepath.Join(dir, "cache/index*/level")) // the pattern is well formed
	for _, file := range levels {
		if data, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(data)) == "3" {
			return filepath.Join("cache", filepath.Base(filepath.Dir(file)), "shared_cpu_list")
		}
	}
	return "cache/none"
}

// lowest returns the lowest usable id in the first file that exists, without one
// the alternative.
func lowest(dir string, alternative int, usable cpuset.CPUSet, files ...string) (int, error) {
	for _, name := range files {
		cpus, err := list(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if cpus = cpus.Intersection(usable); !cpus.IsEmpty() {
			return cpus.List()[0], nil
		}
	}
	return alternative, nil
}

func list(dir, name string) (cpuset.CPUSet, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	ids, err := ParseList(string(data))
	if err != nil {
		return ids, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return ids, nil
}

func total(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := parseTotal(string(data))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

func distances(dir string, nodes []int) (map[int]int, error) {
	file := filepath.Join(dir, "distance")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := parseDistances(string(data), nodes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

// hugePages returns the huge pages that the kernel has reserved. It leaves out what
// it cannot read: such pages cannot be used.
func hugePages(dir string) map[int64]int64 {
	out := map[int64]int64{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return out
	}
	for _, e := range entries {
		kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 40)
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name(), "nr_hugepages"))
		if err != nil {
			continue
		}
		count, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
		if err == nil {
			size := int64(kb) * 1024
			out[size] = int64(count) * size
		}
	}
	return out
}
