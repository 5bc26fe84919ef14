// Package drawn draws machines for tests: in memory, and as the files of sysfs.
package drawn

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/hardware"
)

// Drawing is a regular machine. As on most servers, the first threads of all cores have
// the lowest ids: with 4 cores of 2 threads, CPU 0 and CPU 4 are one core.
type Drawing struct {
	Sockets, Nodes, Cores, Threads int // Nodes and Cores of all sockets together; Nodes a multiple of Sockets or the reverse
	Offline                        []int
	Memory                         int64 // bytes of each node
}

// Machine returns the machine.
func (d Drawing) Machine() hardware.Machine {
	m := hardware.Machine{CPUs: map[int]hardware.CPU{}, Nodes: map[int]hardware.Node{}}
	offline := cpuset.New(d.Offline...)
	all := cpuset.New(d.all()...).Difference(offline)
	lowest := func(same func(a, b int) bool, id int) int {
		for _, other := range all.List() {
			if same(id, other) {
				return other
			}
		}
		return id
	}
	for _, id := range all.List() {
		m.CPUs[id] = hardware.CPU{
			ID: id, Core: lowest(d.sameCore, id), Cache: lowest(d.sameNode, id), Socket: lowest(d.sameSocket, id), Node: d.node(id),
		}
	}
	for n := range d.Nodes {
		var cpus []int
		for id, c := range m.CPUs {
			if c.Node == n {
				cpus = append(cpus, id)
			}
		}
		m.Nodes[n] = hardware.Node{ID: n, CPUs: cpuset.New(cpus...), Memory: d.Memory, HugePages: map[int64]int64{}, Distances: d.distances(n)}
	}
	return m
}

func (d Drawing) all() []int {
	var out []int
	for id := range d.Cores * d.Threads {
		out = append(out, id)
	}
	return out
}

func (d Drawing) core(id int) int          { return id % d.Cores }
func (d Drawing) node(id int) int          { return d.core(id) * d.Nodes / d.Cores }
func (d Drawing) socket(id int) int        { return d.core(id) * d.Sockets / d.Cores }
func (d Drawing) sameCore(a, b int) bool   { return d.core(a) == d.core(b) }
func (d Drawing) sameNode(a, b int) bool   { return d.node(a) == d.node(b) && d.sameSocket(a, b) }
func (d Drawing) sameSocket(a, b int) bool { return d.socket(a) == d.socket(b) }
func (d Drawing) distances(n int) map[int]int {
	out := map[int]int{}
	for other := range d.Nodes {
		out[other] = 20
		if other == n {
			out[other] = 10
		}
	}
	return out
}

// Write writes the machine's files below dir and returns where they are.
func (d Drawing) Write(dir string) (hardware.Paths, error) {
	m := d.Machine()
	files := map[string]string{"sys/devices/system/cpu/online": m.All().String(), "sys/devices/system/node/online": listOf(m.NodeIDs())}
	for _, id := range d.all() {
		cpu := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
		if _, online := m.CPUs[id]; !online {
			files[cpu+"online"] = "0"
			continue
		}
		files[cpu+"topology/core_cpus_list"] = d.siblings(m, id, d.sameCore)
		files[cpu+"topology/package_cpus_list"] = d.siblings(m, id, d.sameSocket)
		files[cpu+"cache/index3/level"] = "3"
		files[cpu+"cache/index3/shared_cpu_list"] = d.siblings(m, id, d.sameNode)
	}
	for id, n := range m.Nodes {
		node := fmt.Sprintf("sys/devices/system/node/node%d/", id)
		files[node+"cpulist"] = n.CPUs.String()
		files[node+"meminfo"] = fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:  1 kB", id, n.Memory/1024, id)
		text := ""
		for _, other := range m.NodeIDs() {
			text += " " + strconv.Itoa(n.Distances[other])
		}
		files[node+"distance"] = text
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return hardware.Paths{}, err
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			return hardware.Paths{}, err
		}
	}
	return hardware.Paths{Sys: filepath.Join(dir, "sys"), Cgroups: filepath.Join(dir, "cgroup"), Proc: filepath.Join(dir, "proc")}, nil
}

func (d Drawing) siblings(m hardware.Machine, id int, same func(a, b int) bool) string {
	var out []int
	for _, other := range m.All().List() {
		if same(id, other) {
			out = append(out, other)
		}
	}
	return listOf(out)
}

func listOf(ids []int) string { return cpuset.New(ids...).String() }
