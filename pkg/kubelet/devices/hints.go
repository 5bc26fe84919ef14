package devices

import (
	"cmp"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/topology"
)

// Provider reserves devices for the topology manager. It calls no plugin: Allocate of the
// Manager does, for the devices that are reserved or for others near the same nodes.
type Provider struct {
	m     *Manager
	nodes topology.Mask
}

var _ topology.Provider = (*Provider)(nil)

// Provider returns the Manager as a provider of hints for a machine with the nodes.
func (m *Manager) Provider(nodes topology.Mask) *Provider { return &Provider{m, nodes} }

// Hints returns the nodes that can serve each resource that the container asks for; none for
// a resource whose devices tell no nodes.
func (p *Provider) Hints(pod *corev1.Pod, c *corev1.Container) map[string][]topology.Hint {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	out := map[string][]topology.Hint{}
	for name, q := range limits(pod, c) {
		if o := p.m.offeredLocked(string(name)); o != nil && q.Sign() > 0 {
			own := map[string]bool{}
			p.m.pods[pod.UID][c.Name][string(name)].addTo(own, true)
			out[string(name)] = p.hintsLocked(string(name), int(q.Value()), own, p.m.reusableLocked(pod, c.Name, string(name)))
		}
	}
	return out
}

// PodHints is Hints for all containers together.
func (p *Provider) PodHints(pod *corev1.Pod) map[string][]topology.Hint {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	out := map[string][]topology.Hint{}
	for c := range podspec.Containers(pod) {
		for name := range limits(pod, c) {
			need := mostAtATime(pod, name)
			if p.m.offeredLocked(string(name)) == nil || need <= 0 || out[string(name)] != nil {
				continue
			}
			own := map[string]bool{}
			for _, of := range p.m.pods[pod.UID] {
				of[string(name)].addTo(own, true)
			}
			out[string(name)] = p.hintsLocked(string(name), need, own, nil)
		}
	}
	return out
}

// mostAtATime returns how many devices the containers of a pod have at most at a time, of
// which those of an init container go to the ones after it.
func mostAtATime(pod *corev1.Pod, name corev1.ResourceName) int {
	most, sidecars := 0, 0
	wants := func(c *corev1.Container) int { q := c.Resources.Limits[name]; return int(q.Value()) }
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podspec.Sidecar(c) {
			sidecars += wants(c)
			continue
		}
		most = max(most, sidecars+wants(c))
	}
	for i := range pod.Spec.Containers {
		sidecars += wants(&pod.Spec.Containers[i])
	}
	return max(most, sidecars)
}

// hintsLocked returns the sets of nodes near which there are so many devices: those that the
// container has already, or those that it can reuse and free ones. m.mu is held.
func (p *Provider) hintsLocked(resource string, need int, own, reusable map[string]bool) []topology.Hint {
	o := p.m.offeredLocked(resource)
	if !slices.ContainsFunc(slices.Collect(maps.Values(o.devices)), func(d device) bool { return len(d.nodes) > 0 }) {
		return nil
	}
	var candidates []string
	if len(own) == need {
		candidates, reusable = slices.Collect(maps.Keys(own)), nil
	} else {
		used, _ := p.m.usedLocked(resource, "")
		candidates = slices.AppendSeq(o.free(used), maps.Keys(reusable))
	}
	all, again := slices.Collect(maps.Keys(o.devices)), slices.Collect(maps.Keys(reusable))
	hints, fewest := []topology.Hint{}, math.MaxInt
	for nodes := range p.nodes.Subsets() {
		if o.countNear(all, nodes) >= need {
			fewest = min(fewest, nodes.Count())
		}
		if o.countNear(again, nodes) == o.countNear(again, p.nodes) && o.countNear(candidates, nodes) >= need {
			hints = append(hints, topology.Hint{Nodes: nodes})
		}
	}
	return topology.Prefer(hints, fewest)
}

// countNear returns how many of the devices are near one of the nodes.
func (o *offer) countNear(ids []string, nodes topology.Mask) int {
	n := 0
	for _, id := range ids {
		if o.devices[id].near(nodes) {
			n++
		}
	}
	return n
}

// Allocate reserves devices for a container, near the nodes of the hint as far as they
// suffice.
func (p *Provider) Allocate(pod *corev1.Pod, c *corev1.Container, at topology.Hint) error {
	a := &allocation{m: p.m, pod: pod}
	for _, r := range p.m.lacking(pod, c) {
		r.at = at.Nodes
		if _, _, err := a.reserve(r, nil); err != nil {
			a.undo()
			return err
		}
	}
	return nil
}

// lacking returns what a container asks for and has neither got nor reserved.
func (m *Manager) lacking(pod *corev1.Pod, c *corev1.Container) []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []request
	for name, q := range limits(pod, c) {
		if q.Sign() > 0 && m.offeredLocked(string(name)) != nil && m.pods[pod.UID][c.Name][string(name)] == nil {
			out = append(out, request{container: c.Name, resource: string(name), need: int(q.Value())})
		}
	}
	slices.SortFunc(out, func(a, b request) int { return cmp.Compare(a.resource, b.resource) })
	return out
}

// Release frees the devices of a pod.
func (p *Provider) Release(pod types.UID) { p.m.Release(pod) }

// Short returns what a pod lacks of devices that it asks for while others have too many; nil:
// it can have them.
func (m *Manager) Short(pod *corev1.Pod) *ShortageError {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range podspec.Containers(pod) {
		for name := range limits(pod, c) {
			o, need := m.offeredLocked(string(name)), mostAtATime(pod, name)
			if o == nil || m.pods[pod.UID] != nil {
				continue
			}
			used, holders := m.usedLocked(string(name), "")
			if n := len(o.free(used)); n < need {
				return &ShortageError{string(name), need, n, holders}
			}
		}
	}
	return nil
}
