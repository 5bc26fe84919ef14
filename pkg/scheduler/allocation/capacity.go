package allocation

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

type quantities = map[resourcev1.QualifiedName]resource.Quantity

// consumes returns how much of each capacity of a shared device a request takes. ok is false
// if the device can never satisfy the request: it lacks a capacity, has too little, or its
// policy allows no such amount.
func consumes(d *device, wants quantities) (amounts quantities, ok bool) {
	for name := range wants {
		if _, known := d.Capacity[name]; !known {
			return nil, false
		}
	}
	amounts = quantities{}
	for name, c := range d.Capacity {
		want, asked := wants[name]
		amount := want
		if d.multiple {
			amount, ok = rounded(&c, want, asked)
			if !ok {
				return nil, false
			}
		}
		if amount.Cmp(c.Value) > 0 {
			return nil, false
		}
		amounts[name] = amount
	}
	if !d.multiple {
		return nil, true // it is allocated as a whole
	}
	return amounts, true
}

// rounded returns the smallest amount of a capacity that its policy allows and that is not
// below what the request wants.
func rounded(c *resourcev1.DeviceCapacity, want resource.Quantity, asked bool) (resource.Quantity, bool) {
	p := c.RequestPolicy
	switch {
	case !asked && p != nil && p.Default != nil:
		return *p.Default, true
	case !asked:
		return c.Value, true
	case p == nil:
		return want, true
	case p.ValidRange != nil:
		return inRange(p.ValidRange, want)
	case len(p.ValidValues) > 0:
		return nextValid(p.ValidValues, want)
	}
	return want, true
}

func nextValid(valid []resource.Quantity, want resource.Quantity) (resource.Quantity, bool) {
	sorted := slices.SortedFunc(slices.Values(valid), func(a, b resource.Quantity) int { return a.Cmp(b) })
	for _, q := range sorted {
		if q.Cmp(want) >= 0 {
			return q, true
		}
	}
	return resource.Quantity{}, false
}

func inRange(r *resourcev1.CapacityRequestPolicyRange, want resource.Quantity) (resource.Quantity, bool) {
	low := resource.Quantity{}
	if r.Min != nil {
		low = *r.Min
	}
	amount := want
	if amount.Cmp(low) < 0 {
		amount = low
	}
	if r.Step != nil && r.Step.Sign() > 0 {
		over := amount.DeepCopy()
		over.Sub(low)
		steps := (over.Value() + r.Step.Value() - 1) / r.Step.Value()
		amount = *resource.NewQuantity(low.Value()+steps*r.Step.Value(), want.Format)
	}
	return amount, r.Max == nil || amount.Cmp(*r.Max) <= 0
}
