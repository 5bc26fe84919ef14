package pods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/topology"
)

// Placement gives pods what has a place on the machine: CPUs, memory of NUMA nodes.
type Placement interface {
	// Admit gives the containers of a new pod all they need and returns nil, or it
	// gives nothing and returns why. Twice is fine.
	Admit(*corev1.Pod) *topology.Refusal
	// Restore gives a pod that already runs what it lacks, as far as possible. The
	// error says what it still lacks.
	Restore(*corev1.Pod) error
	// Release takes everything from a pod that has no containers any more.
	Release(types.UID)
	// Holders returns the pods that have something.
	Holders() []types.UID
	// Place sets what a container has in its resources for the runtime.
	Place(*corev1.Pod, *corev1.Container, *runtimeapi.LinuxContainerResources)
	// Unthrottled reports whether the pod has no CPU quota as a whole.
	Unthrottled(types.UID) bool
	// Infeasible returns why a running pod cannot have the resources that it wants;
	// "": it can.
	Infeasible(has, wants *corev1.Pod) string
}

// place gives the pod its place. A pod that already runs is not refused.
func (w *worker) place(runs bool) *refusal {
	p := w.m.cfg.Placement
	if p == nil {
		return nil
	}
	if runs {
		if err := p.Restore(w.pod); err != nil {
			w.log.Warn("the pod runs without resources of its own", "error", err)
		}
		return nil
	}
	if r := p.Admit(w.pod); r != nil {
		return &refusal{r.Reason, r.Message}
	}
	return nil
}

// unplace takes everything from the pod. m.mu is not held: it may write a file.
func (m *Manager) unplace(uid types.UID) {
	if p := m.cfg.Placement; p != nil {
		p.Release(uid)
	}
}

// unplaceAbsent takes everything from pods that were deleted while no kubelet was
// running. It is called when the workers of all other pods exist.
func (m *Manager) unplaceAbsent() {
	if m.cfg.Placement == nil {
		return
	}
	for _, uid := range m.cfg.Placement.Holders() {
		m.mu.Lock()
		worker := m.workers[uid]
		m.mu.Unlock()
		if worker == nil {
			m.cfg.Placement.Release(uid)
		}
	}
}

// containerResources returns the resources of a container for the runtime.
func (m *Manager) containerResources(pod *corev1.Pod, spec *corev1.Container) *runtimeapi.LinuxContainerResources {
	r := resources.Container(pod, spec, m.cfg.Capacity, m.cfg.Cgroups.Unified())
	if m.cfg.Placement != nil {
		m.cfg.Placement.Place(pod, spec, r)
	}
	return r
}

// sandboxResources returns the resources of the pod as a whole for the runtime.
func (m *Manager) sandboxResources(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	g := resources.Pod(pod, 0)
	if m.cfg.Placement != nil && m.cfg.Placement.Unthrottled(pod.UID) {
		g.Quota = 0
	}
	return &runtimeapi.LinuxContainerResources{
		CpuShares: g.Shares, CpuQuota: g.Quota, CpuPeriod: resources.QuotaPeriod, MemoryLimitInBytes: g.Memory,
	}
}
