package cpumanager

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/checkpoint"
	"podium/pkg/kubelet/hardware"
)

// StateFile is the name of the state file in the kubelet's directory, as upstream's.
const StateFile = "cpu_manager_state"

// exclusive are the CPUs of containers, by pod and name.
type exclusive map[types.UID]map[string]cpuset.CPUSet

// clone returns a copy.
func (e exclusive) clone() exclusive {
	out := exclusive{}
	for uid, containers := range e {
		out[uid] = maps.Clone(containers)
	}
	return out
}

// union returns all exclusive CPUs.
func (e exclusive) union() cpuset.CPUSet {
	out := cpuset.New()
	for _, containers := range e {
		for _, cpus := range containers {
			out = out.Union(cpus)
		}
	}
	return out
}

// record is the content of the state file. The checksum covers the names and types of
// its fields: they are upstream's.
type record struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"` // the shared pool
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checkpoint.Checksum          `json:"checksum"`
}

// sum returns the checksum of the record.
func (r record) sum() checkpoint.Checksum {
	r.Checksum = 0
	if r.Entries == nil {
		r.Entries = map[string]map[string]string{} // upstream's is never nil
	}
	return checkpoint.Sum(&r, strings.NewReplacer("cpumanager.record", "state.CPUManagerCheckpoint", "checkpoint.Checksum", "checksum.Checksum").Replace)
}

func newRecord(policy string, shared cpuset.CPUSet, all exclusive) record {
	r := record{PolicyName: policy, DefaultCPUSet: shared.String(), Entries: map[string]map[string]string{}}
	for uid, containers := range all {
		r.Entries[string(uid)] = map[string]string{}
		for name, cpus := range containers {
			r.Entries[string(uid)][name] = cpus.String()
		}
	}
	r.Checksum = r.sum()
	return r
}

// Checksums implements checkpoint.Record.
func (r record) Checksums() (stored, right checkpoint.Checksum) { return r.Checksum, r.sum() }

// sets parses the CPU sets of the record.
func (r record) sets() (shared cpuset.CPUSet, all exclusive, err error) {
	if shared, err = hardware.ParseList(r.DefaultCPUSet); err != nil {
		return shared, nil, err
	}
	all = exclusive{}
	for uid, containers := range r.Entries {
		all[types.UID(uid)] = map[string]cpuset.CPUSet{}
		for name, text := range containers {
			cpus, err := hardware.ParseList(text)
			if err != nil {
				return shared, nil, fmt.Errorf("pod %s, container %s: %w", uid, name, err)
			}
			all[types.UID(uid)][name] = cpus
		}
	}
	return shared, all, nil
}

// readRecord reads the state file in dir; nil: there is none.
func readRecord(dir string) (*record, error) {
	return checkpoint.Read[record](filepath.Join(dir, StateFile))
}

// unusable says why a state file cannot be used and what the operator can do.
func unusable(dir string, err error) error {
	return fmt.Errorf("CPU manager state: %w: drain the node, stop the kubelet, remove %s and start the kubelet again", err, filepath.Join(dir, StateFile))
}

// CheckNone returns an error if dir has a state of another policy than none: running
// containers would stay bound to the CPUs that they have.
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
	if err != nil {
		return unusable(m.dir, err)
	}
	if r == nil {
		return nil
	}
	if r.PolicyName != Static {
		return unusable(m.dir, otherPolicy(Static, r.PolicyName))
	}
	shared, all, err := r.sets()
	if err == nil && (!shared.IsEmpty() || len(all) > 0) {
		err = m.check(shared, all)
	}
	if err != nil {
		return unusable(m.dir, err)
	}
	m.exclusive = all
	return nil
}

// check returns why a state does not fit the machine and the options. The texts are
// upstream's where it makes the check, too.
func (m *Manager) check(shared cpuset.CPUSet, all exclusive) error {
	if m.options.Strict {
		if in := shared.Intersection(m.reserved); !in.IsEmpty() && !shared.Equals(m.reserved) {
			return fmt.Errorf("some of strictly reserved cpus: %q are present in defaultCpuSet: %q", in.String(), shared.String())
		}
	} else if !m.reserved.IsSubsetOf(shared) {
		return fmt.Errorf("not all reserved cpus: %q are present in defaultCpuSet: %q", m.reserved.String(), shared.String())
	}
	known := shared
	if m.options.Strict {
		known = known.Union(m.reserved)
	}
	for uid, containers := range all {
		own := cpuset.New()
		for name, cpus := range containers {
			if !cpus.Intersection(shared).IsEmpty() {
				return fmt.Errorf("pod: %s, container: %s cpuset: %q overlaps with default cpuset %q", uid, name, cpus.String(), shared.String())
			}
			own = own.Union(cpus)
		}
		if both := own.Intersection(known); !both.IsEmpty() {
			return fmt.Errorf("CPUs %s of pod %s belong to another pod or are reserved, too", both, uid)
		}
		known = known.Union(own)
	}
	if every := m.machine.All(); !known.Equals(every) {
		return fmt.Errorf("current set of available CPUs %q doesn't match with CPUs in state %q", every.String(), known.String())
	}
	return nil
}
