package allocation

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Usage holds which devices are allocated, and how much of those that claims share. It is not
// safe for concurrent use.
type Usage struct {
	devices  map[DeviceID]*use
	versions map[PoolID]int64 // changes with every change of a pool's devices
	clock    int64
}

type use struct {
	claims   int
	capacity map[resourcev1.QualifiedName]resource.Quantity
}

// NewUsage returns a usage in which all devices are free.
func NewUsage() *Usage { return &Usage{devices: map[DeviceID]*use{}, versions: map[PoolID]int64{}} }

// Add records an allocation; nil is none. Devices with admin access are not in use by it.
func (u *Usage) Add(a *resourcev1.AllocationResult) { u.each(a, u.add) }

// Remove undoes Add.
func (u *Usage) Remove(a *resourcev1.AllocationResult) { u.each(a, u.remove) }

func (u *Usage) each(a *resourcev1.AllocationResult, f func(DeviceID, map[resourcev1.QualifiedName]resource.Quantity)) {
	if a == nil {
		return
	}
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if isTrue(r.AdminAccess) {
			continue
		}
		id := DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
		f(id, r.ConsumedCapacity)
		u.clock++
		u.versions[poolOf(id)] = u.clock
	}
}

func (u *Usage) add(id DeviceID, consumed map[resourcev1.QualifiedName]resource.Quantity) {
	of := u.devices[id]
	if of == nil {
		of = &use{capacity: map[resourcev1.QualifiedName]resource.Quantity{}}
		u.devices[id] = of
	}
	of.claims++
	for name, q := range consumed {
		sum := of.capacity[name].DeepCopy()
		sum.Add(q)
		of.capacity[name] = sum
	}
}

func (u *Usage) remove(id DeviceID, consumed map[resourcev1.QualifiedName]resource.Quantity) {
	of := u.devices[id]
	if of == nil {
		return
	}
	if of.claims--; of.claims == 0 {
		delete(u.devices, id)
		return
	}
	for name, q := range consumed {
		rest := of.capacity[name].DeepCopy()
		rest.Sub(q)
		of.capacity[name] = rest
	}
}

// used reports whether a device is allocated.
func (u *Usage) used(id DeviceID) bool { return u.devices[id] != nil }

// taken returns how much of a capacity is allocated.
func (u *Usage) taken(id DeviceID, name resourcev1.QualifiedName) resource.Quantity {
	if of := u.devices[id]; of != nil {
		return of.capacity[name]
	}
	return resource.Quantity{}
}
