package allocation

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"podium/pkg/deviceselector"
	"podium/pkg/devicetaint"
)

// PoolID identifies a pool in the cluster.
type PoolID struct{ Driver, Pool string }

// DeviceID identifies a device in the cluster.
type DeviceID = devicetaint.DeviceID

func poolOf(d DeviceID) PoolID { return PoolID{d.Driver, d.Pool} }

// Index holds the devices of the cluster. It is not safe for concurrent use.
type Index struct {
	slices  map[PoolID]map[string]*resourcev1.ResourceSlice // by name
	pools   map[PoolID]*pool
	local   map[string]map[PoolID]bool // by node name: the pools with devices of only this node
	shared  map[PoolID]bool            // pools with devices of several nodes
	rules   map[string]*resourcev1.DeviceTaintRule
	nearby  map[string][]*pool // cache: by node, the pools that may have devices for it
	version int64              // changes with every change
}

// NewIndex returns an index without devices.
func NewIndex() *Index {
	return &Index{
		slices: map[PoolID]map[string]*resourcev1.ResourceSlice{}, pools: map[PoolID]*pool{},
		local: map[string]map[PoolID]bool{}, shared: map[PoolID]bool{}, rules: map[string]*resourcev1.DeviceTaintRule{},
		nearby: map[string][]*pool{},
	}
}

// pool holds the devices of the newest generation of a pool. It is not modified.
type pool struct {
	PoolID
	groups     []group
	incomplete bool   // some slices of the generation are missing
	invalid    string // why no device of the pool may be used; "" if they may
	counters   map[string]map[string]resource.Quantity
	consuming  []*device // those that consume counters
}

// group is a list of devices that the same nodes can use.
type group struct {
	place
	devices []*device
}

// place says which nodes can use devices.
type place struct {
	node     string // "": selector, or all
	selector *corev1.NodeSelector
	compiled *nodeaffinity.NodeSelector
}

type device struct {
	*resourcev1.Device
	id       DeviceID
	at       *place
	pool     *pool
	seen     deviceselector.Device
	multiple bool // several claims may share it
}

// SetSlice adds or replaces a slice.
func (x *Index) SetSlice(s *resourcev1.ResourceSlice) {
	id := PoolID{s.Spec.Driver, s.Spec.Pool.Name}
	if x.slices[id] == nil {
		x.slices[id] = map[string]*resourcev1.ResourceSlice{}
	}
	x.slices[id][s.Name] = s
	x.rebuild(id)
}

// RemoveSlice removes a slice.
func (x *Index) RemoveSlice(s *resourcev1.ResourceSlice) {
	id := PoolID{s.Spec.Driver, s.Spec.Pool.Name}
	delete(x.slices[id], s.Name)
	x.rebuild(id)
}

// SetRule adds or replaces a rule that taints devices.
func (x *Index) SetRule(r *resourcev1.DeviceTaintRule) {
	x.rules[r.Name] = r
	x.version++
}

// RemoveRule removes a rule.
func (x *Index) RemoveRule(name string) {
	delete(x.rules, name)
	x.version++
}

// rebuild computes a pool from its slices.
func (x *Index) rebuild(id PoolID) {
	x.version++
	clear(x.nearby)
	delete(x.shared, id)
	if old := x.pools[id]; old != nil {
		for _, g := range old.groups {
			delete(x.local[g.node], id)
			if len(x.local[g.node]) == 0 {
				delete(x.local, g.node)
			}
		}
	}
	if len(x.slices[id]) == 0 {
		delete(x.slices, id)
		delete(x.pools, id)
		return
	}
	p := newPool(id, x.slices[id])
	x.pools[id] = p
	for _, g := range p.groups {
		if g.node == "" {
			x.shared[id] = true
			continue
		}
		if x.local[g.node] == nil {
			x.local[g.node] = map[PoolID]bool{}
		}
		x.local[g.node][id] = true
	}
}

// newPool returns the newest generation of a pool.
func newPool(id PoolID, all map[string]*resourcev1.ResourceSlice) *pool {
	p := &pool{PoolID: id, counters: map[string]map[string]resource.Quantity{}}
	var newest []*resourcev1.ResourceSlice
	for _, s := range all {
		switch {
		case len(newest) > 0 && s.Spec.Pool.Generation < newest[0].Spec.Pool.Generation:
			continue
		case len(newest) > 0 && s.Spec.Pool.Generation > newest[0].Spec.Pool.Generation:
			newest = newest[:0]
		}
		newest = append(newest, s)
	}
	slices.SortFunc(newest, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	names := map[string]bool{}
	for _, s := range newest {
		p.incomplete = p.incomplete || int64(len(newest)) != s.Spec.Pool.ResourceSliceCount
		p.add(s, names)
	}
	for _, d := range p.consuming {
		p.checkCounters(d)
	}
	return p
}

func (p *pool) add(s *resourcev1.ResourceSlice, names map[string]bool) {
	for _, set := range s.Spec.SharedCounters {
		if p.counters[set.Name] != nil {
			p.invalid = fmt.Sprintf("duplicate counter set name %s", set.Name)
		}
		p.counters[set.Name] = amounts(set.Counters)
	}
	perDevice := isTrue(s.Spec.PerDeviceNodeSelection)
	if !perDevice {
		p.groups = append(p.groups, group{place: newPlace(s.Spec.NodeName, s.Spec.NodeSelector)})
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if names[d.Name] {
			p.invalid = fmt.Sprintf("duplicate device name %s", d.Name)
		}
		names[d.Name] = true
		if perDevice {
			p.groups = append(p.groups, group{place: newPlace(d.NodeName, d.NodeSelector)})
		}
		g := &p.groups[len(p.groups)-1]
		in := &device{
			Device: d, id: DeviceID{Driver: p.Driver, Pool: p.Pool, Device: d.Name}, pool: p, at: &g.place,
			seen: deviceselector.NewDevice(p.Driver, d), multiple: isTrue(d.AllowMultipleAllocations),
		}
		g.devices = append(g.devices, in)
		if len(d.ConsumesCounters) > 0 {
			p.consuming = append(p.consuming, in)
		}
	}
}

// checkCounters makes the pool invalid if a device consumes a counter that does not exist. A
// counter set may be in another slice than the device.
func (p *pool) checkCounters(d *device) {
	if p.incomplete {
		return
	}
	for _, c := range d.ConsumesCounters {
		set, ok := p.counters[c.CounterSet]
		if !ok {
			p.invalid = fmt.Sprintf("device %s consumes from the counter set %s, which does not exist", d.Name, c.CounterSet)
		}
		for name := range c.Counters {
			if _, known := set[name]; ok && !known {
				p.invalid = fmt.Sprintf("device %s consumes the counter %s of %s, which does not exist", d.Name, name, c.CounterSet)
			}
		}
	}
}

func amounts(counters map[string]resourcev1.Counter) map[string]resource.Quantity {
	out := map[string]resource.Quantity{}
	for name, c := range counters {
		out[name] = c.Value
	}
	return out
}

func isTrue(b *bool) bool { return b != nil && *b }

func newPlace(node *string, selector *corev1.NodeSelector) place {
	if node != nil {
		return place{node: *node}
	}
	p := place{selector: selector}
	if selector != nil {
		p.compiled, _ = nodeaffinity.NewNodeSelector(selector) // the API has validated it
	}
	return p
}

// has reports whether a node can use the devices.
func (p *place) has(node *corev1.Node) bool {
	switch {
	case p.node != "":
		return p.node == node.Name
	case p.selector != nil:
		return p.compiled != nil && p.compiled.Match(node)
	}
	return true
}

// near returns the pools that may have devices for a node, in order.
func (x *Index) near(node string) []*pool {
	if out, known := x.nearby[node]; known {
		return out
	}
	var out []*pool
	for id := range x.local[node] {
		out = append(out, x.pools[id])
	}
	for id := range x.shared {
		if !x.local[node][id] {
			out = append(out, x.pools[id])
		}
	}
	slices.SortFunc(out, func(a, b *pool) int { return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool)) })
	x.nearby[node] = out
	return out
}

// on returns the devices of the pool that a node can use.
func (p *pool) on(node *corev1.Node) (out []*device) {
	for i := range p.groups {
		if p.groups[i].has(node) {
			out = append(out, p.groups[i].devices...)
		}
	}
	return out
}
