package cpumanager

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/hardware"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/topology"
)

// Hints returns the sets of NUMA nodes whose free CPUs suffice for the container.
func (m *Manager) Hints(pod *corev1.Pod, c *corev1.Container) map[string][]topology.Hint {
	n := Wanted(pod, c)
	if n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if own := m.exclusive[pod.UID][c.Name]; !own.IsEmpty() {
		return m.hints(own, cpuset.New(), n)
	}
	reusable := m.reusableLocked(pod, c)
	return m.hints(m.freeLocked(), reusable, n)
}

// PodHints is Hints for all containers of the pod together.
func (m *Manager) PodHints(pod *corev1.Pod) map[string][]topology.Hint {
	n := wantedByPod(pod)
	if n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	own := cpuset.New()
	for _, cpus := range m.exclusive[pod.UID] {
		own = own.Union(cpus)
	}
	return m.hints(m.freeLocked(), own, n)
}

// wantedByPod returns how many exclusive CPUs the pod has at most at a time: the app
// containers and all sidecars, or an init container and the sidecars before it.
func wantedByPod(pod *corev1.Pod) int {
	most, sidecars := 0, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		n := Wanted(pod, c)
		if podspec.Sidecar(c) {
			sidecars += n
			n = 0
		}
		most = max(most, sidecars+n)
	}
	sum := sidecars
	for i := range pod.Spec.Containers {
		sum += Wanted(pod, &pod.Spec.Containers[i])
	}
	return max(most, sum)
}

// hints returns the hints for n of the free CPUs. If the pod has CPUs already, a hint
// must contain their nodes.
func (m *Manager) hints(free, own cpuset.CPUSet, n int) map[string][]topology.Hint {
	free = free.Union(own)
	if m.options.FullCores {
		free = m.wholeCores(free)
	}
	whole, available, needed := map[int]int{}, map[int]int{}, topology.Mask(0)
	for id, c := range m.machine.CPUs {
		whole[c.Node]++
		if free.Contains(id) {
			available[c.Node]++
		}
		if own.Contains(id) {
			needed |= topology.Of(c.Node)
		}
	}
	all := topology.Of(m.machine.NodeIDs()...)
	fewest, out := all.Count(), []topology.Hint{}
	for nodes := range all.Subsets() {
		if sum(whole, nodes) >= n {
			fewest = min(fewest, nodes.Count())
		}
		if needed.Within(nodes) && sum(available, nodes) >= n {
			out = append(out, topology.Hint{Nodes: nodes})
		}
	}
	out = topology.Prefer(out, fewest)
	if m.options.Sockets {
		m.preferSockets(out, fewest)
	}
	return map[string][]topology.Hint{string(corev1.ResourceCPU): out}
}

func sum(counts map[int]int, nodes topology.Mask) int {
	total := 0
	for _, id := range nodes.Nodes() {
		total += counts[id]
	}
	return total
}

// preferSockets marks the hints whose nodes are in as few sockets as the request
// needs on an idle machine.
func (m *Manager) preferSockets(hints []topology.Hint, fewest int) {
	sockets := m.machine.Groups(m.machine.All(), hardware.BySocket)
	perSocket := max(len(m.machine.Nodes)/len(sockets), 1)
	for i := range hints {
		used := m.machine.Groups(m.nodeCPUs(hints[i].Nodes), hardware.BySocket)
		hints[i].Preferred = len(used) == (fewest+perSocket-1)/perSocket
	}
}

func (m *Manager) nodeCPUs(nodes topology.Mask) cpuset.CPUSet {
	out := cpuset.New()
	for _, id := range nodes.Nodes() {
		out = out.Union(m.machine.Nodes[id].CPUs)
	}
	return out
}
