package memorymanager

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/checkpoint"
	"podium/pkg/kubelet/topology"
)

// StateFile is the name of the state file in the kubelet's directory, as upstream's.
const StateFile = "memory_manager_state"

// The checksum of the state file covers the names and types of these fields: they are
// upstream's.
type (
	record struct {
		PolicyName   string              `json:"policyName"`
		MachineState nodeMap             `json:"machineState"`
		Entries      assignments         `json:"entries,omitempty"`
		Checksum     checkpoint.Checksum `json:"checksum"`
	}
	nodeMap   map[int]*nodeState
	nodeState struct {
		NumberOfAssignments int                                  `json:"numberOfAssignments"`
		MemoryMap           map[corev1.ResourceName]*memoryTable `json:"memoryMap"`
		Cells               []int                                `json:"cells"` // the group
	}
	memoryTable struct {
		TotalMemSize   uint64 `json:"total"`
		SystemReserved uint64 `json:"systemReserved"`
		Allocatable    uint64 `json:"allocatable"`
		Reserved       uint64 `json:"reserved"`
		Free           uint64 `json:"free"`
	}
	// assignments are the blocks of containers, by pod and name.
	assignments map[string]map[string][]block
	block       struct {
		NUMAAffinity []int               `json:"numaAffinity"`
		Type         corev1.ResourceName `json:"type"`
		Size         uint64              `json:"size"`
	}
)

// nodes returns the block's group.
func (b *block) nodes() topology.Mask { return topology.Of(b.NUMAAffinity...) }

// clone returns a deep copy, without the pod.
func (a assignments) clone(without types.UID) assignments {
	out := assignments{}
	for uid, containers := range a {
		if uid == string(without) {
			continue
		}
		out[uid] = map[string][]block{}
		for name, blocks := range containers {
			out[uid][name] = slices.Clone(blocks)
		}
	}
	return out
}

// upstreamNames are the names of the types in upstream's checksum.
var upstreamNames = strings.NewReplacer(
	"memorymanager.record", "state.MemoryManagerCheckpoint", "memorymanager.nodeMap", "state.NUMANodeMap",
	"memorymanager.nodeState", "state.NUMANodeState", "memorymanager.memoryTable", "state.MemoryTable",
	"memorymanager.assignments", "state.ContainerMemoryAssignments", "memorymanager.block", "state.Block",
	"checkpoint.Checksum", "checksum.Checksum",
)

// sum returns the checksum of the record.
func (r record) sum() checkpoint.Checksum {
	r.Checksum = 0
	if r.Entries == nil {
		r.Entries = assignments{} // upstream's is never nil
	}
	return checkpoint.Sum(&r, upstreamNames.Replace)
}

func newRecord(policy string, machine nodeMap, all assignments) record {
	r := record{PolicyName: policy, MachineState: machine, Entries: all}
	r.Checksum = r.sum()
	return r
}

// Checksums implements checkpoint.Record.
func (r record) Checksums() (stored, right checkpoint.Checksum) { return r.Checksum, r.sum() }

// readRecord reads the state file in dir; nil: there is none.
func readRecord(dir string) (*record, error) {
	return checkpoint.Read[record](filepath.Join(dir, StateFile))
}

// unusable says why a state file cannot be used and what the operator can do.
func unusable(dir string, err error) error {
	return fmt.Errorf("memory manager state: %w: drain the node, stop the kubelet, remove %s and start the kubelet again", err, filepath.Join(dir, StateFile))
}

// CheckNone returns an error if dir has a state of another policy than None.
func CheckNone(dir string) error {
	r, err := readRecord(dir)
	if err == nil && (r == nil || r.PolicyName == None) {
		return nil
	}
	if err == nil {
		err = otherPolicy(None, r.PolicyName)
	}
	return unusable(dir, err)
}

func otherPolicy(configured, found string) error {
	return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", configured, found)
}

// restore reads the state of an earlier kubelet.
func (m *Manager) restore() error {
	r, err := readRecord(m.dir)
	if err == nil && r == nil {
		return nil
	}
	if err == nil && r.PolicyName != Static {
		err = otherPolicy(Static, r.PolicyName)
	}
	if err == nil {
		err = m.check(r)
	}
	if err != nil {
		return unusable(m.dir, err)
	}
	m.assigned = r.Entries
	if m.assigned == nil {
		m.assigned = assignments{}
	}
	return nil
}

// check returns why a state does not fit the machine and the reservations.
func (m *Manager) check(r *record) error {
	same := maps.EqualFunc(r.MachineState, m.tables, func(a, b *nodeState) bool {
		return a != nil && maps.EqualFunc(a.MemoryMap, b.MemoryMap, func(x, y *memoryTable) bool {
			return x != nil && x.TotalMemSize == y.TotalMemSize && x.SystemReserved == y.SystemReserved && x.Allocatable == y.Allocatable
		})
	})
	if !same {
		return errors.New("the expected machine state is different from the real one: the memory of the NUMA nodes or its reservation has changed")
	}
	for uid, containers := range r.Entries {
		for name, blocks := range containers {
			for i := range blocks {
				if err := m.checkBlock(&blocks[i]); err != nil {
					return fmt.Errorf("pod %s, container %s: %w", uid, name, err)
				}
			}
		}
	}
	return m.checkGroups(r.Entries)
}

func (m *Manager) checkBlock(b *block) error {
	if len(b.NUMAAffinity) == 0 || !slices.IsSorted(b.NUMAAffinity) || len(slices.Compact(slices.Clone(b.NUMAAffinity))) != len(b.NUMAAffinity) {
		return fmt.Errorf("NUMA nodes %v: want ascending ids", b.NUMAAffinity)
	}
	for _, id := range b.NUMAAffinity {
		if m.tables[id] == nil || m.tables[id].MemoryMap[b.Type] == nil {
			return fmt.Errorf("the machine has no %s on NUMA node %d", b.Type, id)
		}
	}
	return nil
}

// checkGroups returns an error if groups overlap or give more than they have.
func (m *Manager) checkGroups(all assignments) error {
	for _, containers := range all {
		for _, blocks := range containers {
			for i := range blocks {
				group, name := blocks[i].nodes(), blocks[i].Type
				if !free(all, group) {
					return fmt.Errorf("the group of NUMA nodes %v overlaps with another one", blocks[i].NUMAAffinity)
				}
				if has := m.sum(group, name); used(all, group, name) > has {
					return fmt.Errorf("NUMA nodes %v have %d bytes of %s: more are assigned", blocks[i].NUMAAffinity, has, name)
				}
			}
		}
	}
	return nil
}

// machineState returns the tables with what is assigned. Within a group the nodes with
// the lowest ids are used first: only the sum of a group has a meaning.
func (m *Manager) machineState(all assignments) nodeMap {
	out := nodeMap{}
	for id, n := range m.tables {
		out[id] = &nodeState{MemoryMap: map[corev1.ResourceName]*memoryTable{}, Cells: []int{id}}
		for name, table := range n.MemoryMap {
			out[id].MemoryMap[name] = new(*table)
		}
	}
	for _, containers := range all {
		for _, blocks := range containers {
			for _, b := range blocks {
				left := b.Size
				for _, id := range b.NUMAAffinity {
					n := out[id]
					n.NumberOfAssignments++
					n.Cells = slices.Clone(b.NUMAAffinity)
					t := n.MemoryMap[b.Type]
					part := min(left, t.Free)
					t.Reserved, t.Free, left = t.Reserved+part, t.Free-part, left-part
				}
			}
		}
	}
	return out
}
