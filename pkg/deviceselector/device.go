package deviceselector

import (
	"strings"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	resourcev1 "k8s.io/api/resource/v1"
	apicel "k8s.io/apiserver/pkg/cel"
)

// Device is a device as expressions see it. It is immutable and safe for concurrent use.
type Device struct{ variables map[string]any }

// NewDevice returns the device of a driver. An attribute with a version that is none has no
// value.
func NewDevice(driver string, d *resourcev1.Device) Device {
	attributes := domains{}
	for name, a := range d.Attributes {
		if v := value(&a); v != nil {
			attributes.add(driver, name, v)
		}
	}
	capacities := domains{}
	for name, c := range d.Capacity {
		q := c.Value
		capacities.add(driver, name, apicel.Quantity{Quantity: &q})
	}
	return Device{map[string]any{deviceVar: map[string]any{
		driverVar: driver, attributesVar: attributes.value(), capacityVar: capacities.value(),
		multipleVar: d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations,
	}}}
}

func value(a *resourcev1.DeviceAttribute) any {
	switch {
	case a.IntValue != nil:
		return *a.IntValue
	case a.BoolValue != nil:
		return *a.BoolValue
	case a.StringValue != nil:
		return *a.StringValue
	case a.VersionValue != nil:
		if v, err := semver.Parse(*a.VersionValue); err == nil {
			return apicel.Semver{Version: v}
		}
	}
	return nil
}

// Split returns the domain and the identifier of a name. The domain of a name without one is
// the driver.
func Split(driver string, name resourcev1.QualifiedName) (domain, id string) {
	if domain, id, qualified := strings.Cut(string(name), "/"); qualified {
		return domain, id
	}
	return driver, string(name)
}

// domains holds values by domain and identifier.
type domains map[string]map[string]any

func (d domains) add(driver string, name resourcev1.QualifiedName, value any) {
	domain, id := Split(driver, name)
	if d[domain] == nil {
		d[domain] = map[string]any{}
	}
	d[domain][id] = value
}

func (d domains) value() ref.Val {
	out := map[string]any{}
	for domain, values := range d {
		out[domain] = values
	}
	return domainMap{types.NewStringInterfaceMap(types.DefaultTypeAdapter, out)}
}

// domainMap returns an empty map for a domain that a device has no values of, so that
// expressions can ask whether it has a value.
type domainMap struct{ traits.Mapper }

// Find implements traits.Mapper.
func (m domainMap) Find(key ref.Val) (ref.Val, bool) {
	if v, ok := m.Mapper.Find(key); ok {
		return v, true
	}
	if _, text := key.(types.String); !text {
		return nil, false
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{}), true
}

// Get implements traits.Indexer.
func (m domainMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return m.Mapper.Get(key)
}
