package memorymanager

import (
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/topology"
)

// Hints returns the groups of NUMA nodes that can serve the container.
func (m *Manager) Hints(pod *corev1.Pod, c *corev1.Container) map[string][]topology.Hint {
	wants := wanted(pod, c)
	if len(wants) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if blocks := m.assigned[string(pod.UID)][c.Name]; len(blocks) > 0 {
		return each(wants, []topology.Hint{{Nodes: blocks[0].nodes(), Preferred: true}})
	}
	return m.hintsLocked(pod, c, wants)
}

// PodHints is Hints for all containers of the pod together.
func (m *Manager) PodHints(pod *corev1.Pod) map[string][]topology.Hint {
	wants := wantedByPod(pod)
	if len(wants) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, blocks := range m.assigned[string(pod.UID)] {
		if len(blocks) > 0 {
			return each(wants, []topology.Hint{{Nodes: blocks[0].nodes(), Preferred: true}})
		}
	}
	return m.hintsLocked(pod, nil, wants)
}

// wantedByPod returns what the pod has at most at a time: the app containers and all
// sidecars, or an init container and the sidecars before it.
func wantedByPod(pod *corev1.Pod) request {
	most, sidecars := request{}, request{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		for name, size := range wanted(pod, c) {
			if podspec.Sidecar(c) {
				sidecars[name] += size
				size = 0
			}
			most[name] = max(most[name], sidecars[name]+size)
		}
	}
	for i := range pod.Spec.Containers {
		for name, size := range wanted(pod, &pod.Spec.Containers[i]) {
			sidecars[name] += size
			most[name] = max(most[name], sidecars[name])
		}
	}
	return most
}

// hintsLocked returns the same hints for each resource: all of them come from one
// group. Preferred are those with as few nodes as the idle machine would need. m.mu
// is held.
func (m *Manager) hintsLocked(pod *corev1.Pod, c *corev1.Container, wants request) map[string][]topology.Hint {
	fewest, out := m.all.Count(), []topology.Hint{}
	for group := range m.all.Subsets() {
		if m.suffices(group, wants) {
			fewest = min(fewest, group.Count())
		}
		if m.servesLocked(pod, c, group, wants) {
			out = append(out, topology.Hint{Nodes: group})
		}
	}
	return each(wants, topology.Prefer(out, fewest))
}

// suffices reports whether the group can serve the request on the idle machine.
func (m *Manager) suffices(group topology.Mask, wants request) bool {
	for name, size := range wants {
		if m.sum(group, name) < size {
			return false
		}
	}
	return true
}

func each(wants request, hints []topology.Hint) map[string][]topology.Hint {
	out := map[string][]topology.Hint{}
	for name := range wants {
		out[string(name)] = hints
	}
	return out
}
