package cpumanager

import (
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/checkpoint"
	"podium/pkg/kubelet/hardware"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/topology"
)

// Manager gives CPUs to containers. Its methods are safe for concurrent use.
type Manager struct {
	machine  hardware.Machine
	options  Options
	reserved cpuset.CPUSet
	dir      string
	metrics  *metrics
	aligned  *topology.Aligned
	log      *slog.Logger
	waker    chan struct{} // of Run

	mu        sync.Mutex
	exclusive exclusive // as in the state file
}

var _ topology.Provider = (*Manager)(nil)

// New returns a Manager with the CPUs that an earlier kubelet has given away. It
// refuses a state that does not fit the configuration.
func New(c Config) (*Manager, error) {
	reserved, err := c.reserve()
	if err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		machine: c.Machine, options: c.Options, reserved: reserved, dir: c.Dir, log: c.Log, metrics: newMetrics(c.Registry), aligned: c.Aligned,
		waker: make(chan struct{}, 1), exclusive: exclusive{},
	}
	if err := m.restore(); err != nil {
		return nil, err
	}
	if err := m.write(m.exclusive); err != nil { // an unwritable directory is to be seen at the start
		return nil, err
	}
	m.setLocked(m.exclusive)
	m.log.Info("CPU manager", "cpus", c.Machine.All().String(), "reserved", reserved.String(), "shared", m.Shared().String())
	return m, nil
}

// Reserved returns the CPUs that are never exclusive.
func (m *Manager) Reserved() cpuset.CPUSet { return m.reserved }

// Allocatable returns the CPUs that can be exclusive.
func (m *Manager) Allocatable() cpuset.CPUSet { return m.machine.All().Difference(m.reserved) }

// Shared returns the CPUs of all containers without exclusive ones. It is never empty.
func (m *Manager) Shared() cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shared(m.exclusive)
}

// shared returns the shared pool beside the exclusive CPUs. With strict reservation the
// reserved CPUs serve it only when nothing else is left: containers cannot run on none.
func (m *Manager) shared(all exclusive) cpuset.CPUSet {
	rest := m.machine.All().Difference(all.union())
	if !m.options.Strict {
		return rest
	}
	if rest = rest.Difference(m.reserved); rest.IsEmpty() {
		return m.reserved
	}
	return rest
}

// Exclusive returns the exclusive CPUs of a container; empty: it runs in the shared pool.
func (m *Manager) Exclusive(uid types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exclusive[uid][container]
}

// Of returns the CPUs on which a container may run.
func (m *Manager) Of(uid types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ofLocked(uid, container)
}

func (m *Manager) ofLocked(uid types.UID, container string) cpuset.CPUSet {
	if own := m.exclusive[uid][container]; !own.IsEmpty() {
		return own
	}
	return m.shared(m.exclusive)
}

// Holders returns the pods that have exclusive CPUs.
func (m *Manager) Holders() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.exclusive))
}

// Wanted returns how many exclusive CPUs the container is to get. As upstream, a pod
// that requests resources as a whole gets none.
func Wanted(pod *corev1.Pod, c *corev1.Container) int {
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		return 0
	}
	q := c.Resources.Requests.Cpu()
	if q.MilliValue()%1000 != 0 || resources.QOS(pod) != corev1.PodQOSGuaranteed {
		return 0
	}
	return int(q.Value())
}

// Allocate gives the container its exclusive CPUs, near the nodes of the hint as far as
// they suffice.
func (m *Manager) Allocate(pod *corev1.Pod, c *corev1.Container, at topology.Hint) error {
	n := Wanted(pod, c)
	if n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.allocateLocked(pod, c, n, at.Nodes)
	m.metrics.pinned(err)
	m.countAligned(m.exclusive[pod.UID][c.Name], err)
	return err
}

// countAligned counts whether a container has CPUs as the options guarantee, and whether they
// share a cache.
func (m *Manager) countAligned(cpus cpuset.CPUSet, err error) {
	if m.options.FullCores {
		m.aligned.Count(topology.ScopeContainer, topology.WithinCores, err)
	}
	if err == nil && len(m.machine.Groups(cpus, hardware.ByCache)) == 1 {
		m.aligned.Count(topology.ScopeContainer, topology.WithinCache, nil)
	}
}

func (m *Manager) allocateLocked(pod *corev1.Pod, c *corev1.Container, n int, at topology.Mask) error {
	if _, has := m.exclusive[pod.UID][c.Name]; has {
		return nil
	}
	reusable := m.reusableLocked(pod, c)
	free, err := m.usable(m.freeLocked().Union(reusable), n)
	if err != nil {
		return err
	}
	cpus, err := m.near(free, n, reusable, m.cpusOf(at))
	if err != nil {
		return err
	}
	next := m.exclusive.clone()
	if next[pod.UID] == nil {
		next[pod.UID] = map[string]cpuset.CPUSet{}
	}
	next[pod.UID][c.Name] = cpus
	if err := m.write(next); err != nil {
		return err
	}
	m.setLocked(next)
	m.log.Info("container has exclusive CPUs", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name, "cpus", cpus.String())
	return nil
}

// freeLocked returns the CPUs that no container has and that are not reserved. m.mu is
// held.
func (m *Manager) freeLocked() cpuset.CPUSet {
	return m.Allocatable().Difference(m.exclusive.union())
}

// usable returns those of the free CPUs from which n can be taken, or an error if the
// option full-pcpus-only refuses the request.
func (m *Manager) usable(free cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
	if !m.options.FullCores {
		return free, nil
	}
	threads := m.machine.ThreadsPerCore()
	if n%threads != 0 {
		return free, errSMT(fmt.Sprintf("requested %d cpus not multiple cpus per core = %d", n, threads))
	}
	free = m.wholeCores(free)
	if free.Size() < n {
		return free, errSMT(fmt.Sprintf("not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free.Size(), n, threads))
	}
	return free, nil
}

// wholeCores returns the CPUs whose core is free as a whole. A core with fewer threads
// than others, since one is offline, is none: with it, sums of cores could miss a
// request by a thread, and a core would be split.
func (m *Manager) wholeCores(free cpuset.CPUSet) cpuset.CPUSet {
	threads, out := m.machine.ThreadsPerCore(), cpuset.New()
	for _, part := range m.machine.Groups(free, hardware.ByCore) {
		if part.Size() == threads {
			out = out.Union(part)
		}
	}
	return out
}

// near takes n of the free CPUs: first those of each set, then others. Reused CPUs come
// first, so that a pod never has more CPUs than it requests.
func (m *Manager) near(free cpuset.CPUSet, n int, sets ...cpuset.CPUSet) (cpuset.CPUSet, error) {
	t, taken := taker{m.machine, m.options}, cpuset.New()
	for _, set := range sets {
		part := free.Intersection(set).Difference(taken)
		if m.options.FullCores {
			part = m.wholeCores(part)
		}
		some, err := t.take(part, min(n-taken.Size(), part.Size()))
		if err != nil {
			return taken, err
		}
		taken = taken.Union(some)
	}
	rest, err := t.take(free.Difference(taken), n-taken.Size())
	return taken.Union(rest), err
}

// cpusOf returns the CPUs of the nodes or, with align-by-socket, of their sockets.
func (m *Manager) cpusOf(at topology.Mask) cpuset.CPUSet {
	out, sockets := cpuset.New(), map[int]bool{}
	for _, c := range m.machine.CPUs {
		if at.Has(c.Node) {
			out, sockets[c.Socket] = out.Union(cpuset.New(c.ID)), true
		}
	}
	if m.options.Sockets {
		for _, c := range m.machine.CPUs {
			if sockets[c.Socket] {
				out = out.Union(cpuset.New(c.ID))
			}
		}
	}
	return out
}

// reusableLocked returns the CPUs of the pod that the container can have because they
// belong to init containers that end before it starts. Sidecars do not end, and what
// an earlier container has taken of them is gone. m.mu is held.
func (m *Manager) reusableLocked(pod *corev1.Pod, c *corev1.Container) cpuset.CPUSet {
	out, has := cpuset.New(), m.exclusive[pod.UID]
	for i := range pod.Spec.InitContainers {
		init := &pod.Spec.InitContainers[i]
		if init.Name == c.Name {
			return out
		}
		if podspec.Sidecar(init) {
			out = out.Difference(has[init.Name])
		} else {
			out = out.Union(has[init.Name])
		}
	}
	for i := range pod.Spec.Containers {
		if name := pod.Spec.Containers[i].Name; name != c.Name {
			out = out.Difference(has[name])
		}
	}
	return out
}

// Release returns the pod's CPUs to the shared pool. If it cannot write the state file,
// the file keeps them until the next change; a restarted kubelet releases them again.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, has := m.exclusive[uid]; !has {
		return
	}
	next := m.exclusive.clone()
	delete(next, uid)
	if err := m.write(next); err != nil {
		m.log.Warn("release exclusive CPUs failed", "uid", uid, "error", err)
	}
	m.setLocked(next)
}

// write writes a state to the state file.
func (m *Manager) write(next exclusive) error {
	if err := checkpoint.Write(filepath.Join(m.dir, StateFile), newRecord(Static, m.shared(next), next)); err != nil {
		return fmt.Errorf("write CPU manager state: %w", err)
	}
	return nil
}

// setLocked takes over a state and wakes Run. m.mu is held, except in New.
func (m *Manager) setLocked(next exclusive) {
	m.exclusive = next
	m.metrics.state(m.shared(next), next.union(), m.machine)
	select {
	case m.waker <- struct{}{}:
	default:
	}
}

// errSMT says that whole cores cannot serve a request.
type errSMT string

func (e errSMT) Error() string  { return "SMT Alignment Error: " + string(e) }
func (e errSMT) Reason() string { return "SMTAlignmentError" }
