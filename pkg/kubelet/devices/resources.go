package devices

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/kubelet/topology"
)

// offer is a resource that a plugin offers, or offered before the kubelet restarted.
type offer struct {
	plugin  *plugin           // nil: there is no connection to one
	lost    time.Time         // when the connection was lost, or the kubelet started
	removed bool              // it was lost too long ago: the resource is no longer that of a plugin
	devices map[string]device // by id
}

// device is what a plugin says of a device.
type device struct {
	healthy bool
	nodes   []int64 // the NUMA nodes that it is close to; nil: unknown
}

// near reports whether the device is close to one of the nodes.
func (d device) near(nodes topology.Mask) bool {
	return slices.ContainsFunc(d.nodes, func(n int64) bool { return n < 64 && nodes.Has(int(n)) })
}

// counts returns the number of healthy devices and of all.
func (o *offer) counts() (healthy, all int) {
	for _, d := range o.devices {
		if d.healthy {
			healthy++
		}
	}
	return healthy, len(o.devices)
}

// offeredLocked returns the offer of a resource; nil if it is not that of a plugin. m.mu is
// held.
func (m *Manager) offeredLocked(name string) *offer {
	if o := m.resources[name]; o != nil && !o.removed {
		return o
	}
	return nil
}

// Capacity returns the number of devices of each resource that a plugin offers, and how many
// of them are healthy. Both are 0 for the resource of a plugin that has been lost for five
// minutes, or that has not come back since the kubelet was restarted.
func (m *Manager) Capacity() (capacity, allocatable corev1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for name, o := range m.resources {
		if o.plugin == nil && !o.removed && time.Since(o.lost) >= lostPluginGrace {
			o.removed, o.devices = true, nil
		}
		healthy, all := o.counts()
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(all), resource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
	return capacity, allocatable
}

// Device is a device of the node.
type Device struct {
	Resource string
	ID       string
	Nodes    []int64 // the NUMA nodes that it is close to; nil: unknown
}

// Allocatable returns the healthy devices of the node, in order.
func (m *Manager) Allocatable() []Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Device
	for _, name := range slices.Sorted(maps.Keys(m.resources)) {
		o := m.resources[name]
		for _, id := range slices.Sorted(maps.Keys(o.devices)) {
			if d := o.devices[id]; d.healthy {
				out = append(out, Device{name, id, d.nodes})
			}
		}
	}
	return out
}

// Devices returns the devices that a container has, in order.
func (m *Manager) Devices(pod types.UID, container string) []Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Device
	for _, name := range slices.Sorted(maps.Keys(m.pods[pod][container])) {
		for _, id := range m.pods[pod][container][name].ids() {
			out = append(out, Device{name, id, m.pods[pod][container][name].devices[id]})
		}
	}
	return out
}

// Status returns the health of the devices that a container has, for its status in the API;
// nil if it has none.
func (m *Manager) Status(pod types.UID, container string) []corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []corev1.ResourceStatus
	for _, name := range slices.Sorted(maps.Keys(m.pods[pod][container])) {
		s := corev1.ResourceStatus{Name: corev1.ResourceName(name)}
		for _, id := range m.pods[pod][container][name].ids() {
			s.Resources = append(s.Resources, corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: m.healthLocked(name, id)})
		}
		out = append(out, s)
	}
	return out
}

func (m *Manager) healthLocked(name, id string) corev1.ResourceHealthStatus {
	o := m.resources[name]
	if o == nil || o.plugin == nil {
		return corev1.ResourceHealthStatusUnknown
	}
	switch d, known := o.devices[id]; {
	case !known:
		return corev1.ResourceHealthStatusUnknown
	case d.healthy:
		return corev1.ResourceHealthStatusHealthy
	}
	return corev1.ResourceHealthStatusUnhealthy
}

// inventory returns the devices of a plugin's list by id. If the list has an id twice, the
// device is healthy only if both entries are. A device without an id cannot be allocated.
func inventory(list []*api.Device) map[string]device {
	out := make(map[string]device, len(list))
	for _, d := range list {
		if d.GetID() == "" {
			continue
		}
		next := device{healthy: d.Health == api.Healthy, nodes: numaNodes(d.Topology)}
		if before, twice := out[d.ID]; twice {
			next.healthy = next.healthy && before.healthy
		}
		out[d.ID] = next
	}
	return out
}

func numaNodes(t *api.TopologyInfo) []int64 {
	var out []int64
	for _, n := range t.GetNodes() {
		if id := n.GetID(); id >= 0 {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// validName reports whether a plugin may offer the resource: an extended resource, which is
// neither native nor the name of a quota.
func validName(name string) bool {
	if !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
