package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/topology"
)

// containers are the grants of a pod's containers, by container and resource.
type containers map[string]map[string]*grant

// grant is the devices of one resource that a container has.
type grant struct {
	devices  map[string][]int64             // their NUMA nodes, by id
	response *api.ContainerAllocateResponse // how the container gets them; nil: they are only reserved
	preStart bool                           // the plugin is to be called before each start of the container
	at       topology.Mask                  // the NUMA nodes that it should be from; 0: any
}

// ids returns the ids of the devices, in order.
func (g *grant) ids() []string { return slices.Sorted(maps.Keys(g.devices)) }

// ShortageError is returned if other pods have the devices that a pod needs.
type ShortageError struct {
	Resource        string
	Needed, Present int
	Holders         []types.UID // the pods that have devices of the resource
}

// Error has upstream's text.
func (e *ShortageError) Error() string {
	return fmt.Sprintf("requested number of devices unavailable for %s. Requested: %d, Available: %d", e.Resource, e.Needed, e.Present)
}

// errReleased is returned by Allocate if the pod ended meanwhile.
var errReleased = errors.New("the pod's devices have been released")

// allocation is one call of Allocate.
type allocation struct {
	m         *Manager
	pod       *corev1.Pod
	exchanges types.UID // the pod itself if it may exchange what is reserved for it; "": it may not
	made      []func()  // take back the grants of this call; m.mu is held
}

// Allocate gives the containers of a pod the devices that they ask for, unless they have
// them. It blocks on the plugins, each call for a minute at most. After an error the pod has
// no other devices than before. Only one goroutine may call it for a pod.
func (m *Manager) Allocate(ctx context.Context, pod *corev1.Pod) error {
	a := &allocation{m: m, pod: pod, exchanges: pod.UID}
	err := a.containers(ctx)
	if err == nil && len(a.made) > 0 {
		if err = m.save(); err != nil {
			err = fmt.Errorf("write checkpoint: %w", err)
		}
	}
	if err != nil {
		a.undo()
	}
	return err
}

// containers allocates for one container after the other.
func (a *allocation) containers(ctx context.Context) error {
	for _, list := range [][]corev1.Container{a.pod.Spec.InitContainers, a.pod.Spec.Containers} {
		for i := range list {
			if err := a.container(ctx, &list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// reusableLocked returns the devices of earlier containers of a pod that a container may
// have, too. As upstream, these are the devices of init containers, but for those of
// sidecars, which run on, and of the containers that have got them since. m.mu is held.
func (m *Manager) reusableLocked(pod *corev1.Pod, container, resource string) map[string]bool {
	out := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name == container {
			return out
		}
		m.pods[pod.UID][c.Name][resource].addTo(out, !podspec.Sidecar(c))
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name == container {
			break
		}
		m.pods[pod.UID][c.Name][resource].addTo(out, false)
	}
	return out
}

// addTo adds the devices of a grant, which may be nil, to a set, or removes them.
func (g *grant) addTo(set map[string]bool, add bool) {
	if g == nil {
		return
	}
	for id := range g.devices {
		if set[id] = true; !add {
			delete(set, id)
		}
	}
}

// limits returns what a container asks for, without the extended resources for which devices of the
// pod's claim stand.
func limits(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	s := pod.Status.ExtendedResourceClaimStatus
	if s == nil {
		return c.Resources.Limits
	}
	out := maps.Clone(c.Resources.Limits)
	for _, m := range s.RequestMappings {
		if m.ContainerName == c.Name {
			delete(out, corev1.ResourceName(m.ResourceName))
		}
	}
	return out
}

// container allocates what one container asks for and lacks.
func (a *allocation) container(ctx context.Context, c *corev1.Container) error {
	list := limits(a.pod, c)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		need, resource := int(q.Value()), string(name)
		a.m.mu.Lock()
		offered, have := a.m.offeredLocked(resource) != nil, a.m.pods[a.pod.UID][c.Name][resource]
		a.m.mu.Unlock()
		switch {
		case have != nil && len(have.devices) != need:
			return fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", a.pod.UID, c.Name, resource, len(have.devices), need)
		case have != nil && have.response != nil || !offered || need <= 0:
			continue
		}
		var at topology.Mask
		if have != nil { // reserved, by a Provider
			at = have.at
		}
		if err := a.allocate(ctx, request{c.Name, resource, need, at}); err != nil {
			return err
		}
	}
	return nil
}

// request is what a container asks for.
type request struct {
	container, resource string
	need                int
	at                  topology.Mask // the NUMA nodes that the devices should be near; 0: any
}

// allocate chooses devices for a container and has the plugin prepare them.
func (a *allocation) allocate(ctx context.Context, r request) error {
	c, err := a.choose(r, nil)
	if err != nil {
		return err
	}
	var preferred []string
	if !c.forced && c.plugin.options.GetGetPreferredAllocationAvailable() {
		if preferred, err = c.plugin.prefer(ctx, c, r.need); err != nil {
			return err
		}
	}
	g, p, err := a.reserve(r, preferred)
	if err != nil {
		return err
	}
	start := time.Now()
	response, err := p.allocate(ctx, g.ids())
	a.m.cfg.Metrics.allocated(r.resource, time.Since(start))
	if err != nil {
		return err
	}
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if a.m.pods[a.pod.UID][r.container][r.resource] != g {
		return errReleased
	}
	g.response, g.preStart, a.m.stale = response, p.options.GetPreStartRequired(), true
	return nil
}

// choice is the devices of a resource that a container may have.
type choice struct {
	plugin *plugin
	reused []string // those of init containers before it, at most as many as it needs
	free   []string // those that no container has, the best first; at least as many as it still needs
	forced bool     // nothing is left to choose: it gets the first ones
}

// choose returns what a container may have. Then it calls take, which may be nil, with m.mu
// held.
func (a *allocation) choose(r request, take func(*offer, choice)) (choice, error) {
	resource := r.resource
	m := a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.offeredLocked(resource)
	if o == nil {
		return choice{}, fmt.Errorf("cannot allocate unregistered device %s", resource)
	}
	healthy, _ := o.counts()
	if healthy == 0 || o.plugin == nil {
		return choice{}, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", resource)
	}
	used, holders := m.usedLocked(resource, a.exchanges)
	c := choice{plugin: o.plugin, reused: slices.Sorted(maps.Keys(m.reusableLocked(a.pod, r.container, resource)))}
	c.reused = c.reused[:min(r.need, len(c.reused))]
	left := r.need - len(c.reused)
	c.free = o.free(used)
	if len(c.free) < left {
		return choice{}, &ShortageError{resource, left, len(c.free), holders}
	}
	c.forced = left == 0
	if near := o.sortByNode(c.free, r.at); near >= left && r.at != 0 {
		c.free, c.forced = c.free[:near], near == left
	}
	if take != nil {
		take(o, c)
	}
	return c, nil
}

// free returns the healthy devices that are not used, in order.
func (o *offer) free(used map[string]bool) []string {
	var out []string
	for id, d := range o.devices {
		if d.healthy && !used[id] {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// sortByNode moves the devices near the nodes to the front, and those of which no node is
// known to the end. It returns how many are near.
func (o *offer) sortByNode(ids []string, nodes topology.Mask) (near int) {
	rank := func(id string) int {
		switch d := o.devices[id]; {
		case nodes == 0 || d.near(nodes):
			return 0
		case len(d.nodes) > 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(ids, func(a, b string) int { return rank(a) - rank(b) })
	for near < len(ids) && rank(ids[near]) == 0 {
		near++
	}
	return near
}

// usedLocked returns the devices of a resource that containers have, and their pods. What is
// only reserved for containers of the pod exchanges is not used. m.mu is held.
func (m *Manager) usedLocked(resource string, exchanges types.UID) (used map[string]bool, holders []types.UID) {
	used = map[string]bool{}
	for uid, list := range m.pods {
		holds := false
		for _, of := range list {
			if g := of[resource]; g != nil && (g.response != nil || uid != exchanges) {
				holds = true
				g.addTo(used, true)
			}
		}
		if holds {
			holders = append(holders, uid)
		}
	}
	return used, holders
}

// reserve takes devices for a container: first those that it can reuse, then those that the
// plugin prefers.
func (a *allocation) reserve(r request, preferred []string) (g *grant, p *plugin, err error) {
	c, err := a.choose(r, func(o *offer, c choice) {
		g = &grant{devices: map[string][]int64{}, at: r.at}
		take := func(ids []string) {
			for _, id := range ids {
				if len(g.devices) < r.need {
					g.devices[id] = o.devices[id].nodes
				}
			}
		}
		take(c.reused)
		free := map[string]bool{}
		for _, id := range c.free {
			free[id] = true
		}
		take(slices.DeleteFunc(preferred, func(id string) bool { return !free[id] }))
		take(c.free)
		a.m.grantLocked(a.pod.UID, r.container, r.resource, g)
	})
	if err != nil {
		return nil, nil, err
	}
	a.made = append(a.made, func() { a.m.takeBackLocked(a.pod.UID, r.container, r.resource, g) })
	return g, c.plugin, nil
}

func (m *Manager) grantLocked(pod types.UID, container, resource string, g *grant) {
	if m.pods[pod] == nil {
		m.pods[pod] = containers{}
	}
	if m.pods[pod][container] == nil {
		m.pods[pod][container] = map[string]*grant{}
	}
	m.pods[pod][container][resource] = g
}

// takeBackLocked takes back a grant, unless the pod has been released. m.mu is held.
func (m *Manager) takeBackLocked(pod types.UID, container, resource string, g *grant) {
	of := m.pods[pod][container]
	if of[resource] != g {
		return
	}
	m.stale = true
	if delete(of, resource); len(of) == 0 {
		delete(m.pods[pod], container)
	}
	if len(m.pods[pod]) == 0 {
		delete(m.pods, pod)
	}
}

// undo takes back what this allocation has granted.
func (a *allocation) undo() {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	for _, takeBack := range a.made {
		takeBack()
	}
}

// Release frees the devices of a pod whose containers have ended. Twice is fine.
func (m *Manager) Release(pod types.UID) {
	m.mu.Lock()
	if m.pods[pod] != nil {
		delete(m.pods, pod)
		m.stale = true
	}
	stale := m.stale
	m.mu.Unlock()
	if !stale {
		return
	}
	// An older checkpoint gives no device to two pods: none is allocated until a newer one
	// has been written.
	if err := m.save(); err != nil {
		m.cfg.Log.Warn("write checkpoint of device plugins failed", "error", err)
	}
}

// Pods returns the pods that have devices.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.pods))
}
