package memorymanager

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/checkpoint"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/topology"
)

// Manager gives memory of NUMA nodes to containers. Its methods are safe for
// concurrent use.
type Manager struct {
	tables  nodeMap // of the idle machine
	all     topology.Mask
	dir     string
	metrics *metrics
	log     *slog.Logger

	mu       sync.Mutex
	assigned assignments // as in the state file
}

var _ topology.Provider = (*Manager)(nil)

// New returns a Manager with the memory that an earlier kubelet has given away. It
// refuses a state that does not fit the configuration.
func New(c Config) (*Manager, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Manager{tables: c.tables(), all: topology.Of(c.Machine.NodeIDs()...), dir: c.Dir, metrics: newMetrics(c.Registry), log: c.Log, assigned: assignments{}}
	if err := m.restore(); err != nil {
		return nil, err
	}
	return m, m.write(m.assigned) // an unwritable directory is to be seen at the start
}

func (m *Manager) write(all assignments) error {
	if err := checkpoint.Write(filepath.Join(m.dir, StateFile), newRecord(Static, m.machineState(all), all)); err != nil {
		return fmt.Errorf("write memory manager state: %w", err)
	}
	return nil
}

// Nodes returns the NUMA nodes to which the container's memory is bound; 0: all.
func (m *Manager) Nodes(uid types.UID, container string) topology.Mask {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out topology.Mask
	for _, b := range m.assigned[string(uid)][container] {
		out |= b.nodes()
	}
	return out
}

// Block is memory of a group of NUMA nodes.
type Block struct {
	Resource corev1.ResourceName // memory or hugepages-SIZE
	Bytes    uint64
	Nodes    []int
}

// Blocks returns the memory that a container has.
func (m *Manager) Blocks(uid types.UID, container string) []Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Block
	for _, b := range m.assigned[string(uid)][container] {
		out = append(out, Block{b.Type, b.Size, slices.Clone(b.NUMAAffinity)})
	}
	return out
}

// Allocatable returns the memory of each NUMA node that containers may have, ordered by node and
// resource.
func (m *Manager) Allocatable() []Block {
	var out []Block
	for _, node := range slices.Sorted(maps.Keys(m.tables)) {
		tables := m.tables[node].MemoryMap
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			if n := tables[name].Allocatable; n > 0 {
				out = append(out, Block{name, n, []int{node}})
			}
		}
	}
	return out
}

// Holders returns the pods that have memory.
func (m *Manager) Holders() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for uid := range m.assigned {
		out = append(out, types.UID(uid))
	}
	return out
}

// request is bytes by resource.
type request map[corev1.ResourceName]uint64

// wanted returns what the container is to get. As upstream, a pod that requests
// resources as a whole gets nothing.
func wanted(pod *corev1.Pod, c *corev1.Container) request {
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 || resources.QOS(pod) != corev1.PodQOSGuaranteed {
		return nil
	}
	out := request{}
	for name, q := range c.Resources.Requests {
		if managed(name) && q.Sign() > 0 {
			out[name] = uint64(q.Value())
		}
	}
	return out
}

// Allocate gives the container its memory from the nodes of the hint or, if they do not
// suffice, from as few more as possible.
func (m *Manager) Allocate(pod *corev1.Pod, c *corev1.Container, at topology.Hint) error {
	wants := wanted(pod, c)
	if len(wants) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.allocateLocked(pod, c, wants, at.Nodes)
	m.metrics.pinned(err)
	return err
}

func (m *Manager) allocateLocked(pod *corev1.Pod, c *corev1.Container, wants request, at topology.Mask) error {
	uid := string(pod.UID)
	if _, has := m.assigned[uid][c.Name]; has {
		return nil
	}
	group, ok := m.groupLocked(pod, c, wants, at)
	if !ok {
		return errors.New("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	}
	next := m.assigned.clone("")
	if next[uid] == nil {
		next[uid] = map[string][]block{}
	}
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		reuse(next[uid], endedBefore(pod, c), group, name, wants[name])
		next[uid][c.Name] = append(next[uid][c.Name], block{NUMAAffinity: group.Nodes(), Type: name, Size: wants[name]})
	}
	if err := m.write(next); err != nil {
		return err
	}
	m.assigned = next
	m.log.Info("container has memory of NUMA nodes", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name, "nodes", group.Nodes())
	return nil
}

// groupLocked returns the best group that can serve the request and contains at. m.mu
// is held.
func (m *Manager) groupLocked(pod *corev1.Pod, c *corev1.Container, wants request, at topology.Mask) (topology.Mask, bool) {
	best, found := topology.Mask(0), false
	for group := range m.all.Subsets() {
		if at.Within(group) && m.servesLocked(pod, c, group, wants) && (!found || group.Count() < best.Count()) {
			best, found = group, true
		}
	}
	return best, found
}

// servesLocked reports whether the group can serve the request: no other group has one
// of its nodes, it has enough, and it is where the pod has memory to reuse. c is nil for
// the pod as a whole. m.mu is held.
func (m *Manager) servesLocked(pod *corev1.Pod, c *corev1.Container, group topology.Mask, wants request) bool {
	if !free(m.assigned, group) {
		return false
	}
	own := m.assigned[string(pod.UID)]
	ended := endedBefore(pod, c)
	for name, size := range wants {
		reusable := uint64(0)
		for _, init := range ended {
			for _, b := range own[init] {
				if b.Type == name && b.Size > 0 && b.nodes() != group {
					return false
				}
				if b.Type == name {
					reusable += b.Size
				}
			}
		}
		if taken, has := used(m.assigned, group, name), m.sum(group, name); taken+size > has+min(reusable, size) {
			return false
		}
	}
	return true
}

// endedBefore returns the names of the init containers that have ended when c starts.
func endedBefore(pod *corev1.Pod, c *corev1.Container) []string {
	var out []string
	for i := range pod.Spec.InitContainers {
		init := &pod.Spec.InitContainers[i]
		if c != nil && init.Name == c.Name {
			break
		}
		if !podspec.Sidecar(init) {
			out = append(out, init.Name)
		}
	}
	return out
}

// reuse takes size bytes from what ended init containers have in the group. Their
// blocks remain, maybe empty: they say on which nodes the containers run if they run
// again.
func reuse(own map[string][]block, ended []string, group topology.Mask, name corev1.ResourceName, size uint64) {
	for _, init := range ended {
		for i := range own[init] {
			if b := &own[init][i]; b.Type == name && b.nodes() == group {
				part := min(b.Size, size)
				b.Size, size = b.Size-part, size-part
			}
		}
	}
}

// free reports whether no other group has a node of this one.
func free(all assignments, group topology.Mask) bool {
	for _, containers := range all {
		for _, blocks := range containers {
			for i := range blocks {
				if other := blocks[i].nodes(); other != group && other&group != 0 {
					return false
				}
			}
		}
	}
	return true
}

// used returns what is assigned of a group.
func used(all assignments, group topology.Mask, name corev1.ResourceName) uint64 {
	out := uint64(0)
	for _, containers := range all {
		for _, blocks := range containers {
			for i := range blocks {
				if blocks[i].Type == name && blocks[i].nodes() == group {
					out += blocks[i].Size
				}
			}
		}
	}
	return out
}

// sum returns what the nodes have for pods.
func (m *Manager) sum(group topology.Mask, name corev1.ResourceName) uint64 {
	out := uint64(0)
	for _, id := range group.Nodes() {
		if t := m.tables[id].MemoryMap[name]; t != nil {
			out += t.Allocatable
		}
	}
	return out
}

// Release frees the pod's memory. If it cannot write the state file, the file keeps it
// until the next change; a restarted kubelet releases it again.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, has := m.assigned[string(uid)]; !has {
		return
	}
	next := m.assigned.clone(uid)
	if err := m.write(next); err != nil {
		m.log.Warn("release memory of NUMA nodes failed", "uid", uid, "error", err)
	}
	m.assigned = next
}
