package allocation

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"podium/pkg/devicetaint"
)

// tolerated reports whether a request tolerates all taints of a device: those of its slice
// and those of rules.
func (x *Index) tolerated(d *device, tolerations []resourcev1.DeviceToleration) bool {
	for i := range d.Taints {
		if !tolerates(tolerations, &d.Taints[i]) {
			return false
		}
	}
	for _, r := range x.rules {
		if devicetaint.Selects(r.Spec.DeviceSelector, d.id) && !tolerates(tolerations, &r.Spec.Taint) {
			return false
		}
	}
	return true
}

// tolerates reports whether a taint does not prevent an allocation.
func tolerates(tolerations []resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) bool {
	if taint.Effect != resourcev1.DeviceTaintEffectNoSchedule && taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return true
	}
	return slices.ContainsFunc(tolerations, func(t resourcev1.DeviceToleration) bool { return devicetaint.Matches(&t, taint) })
}
