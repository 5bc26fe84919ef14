package quota

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// addDevices adds the devices that a claim may get at most, by their class.
func addDevices(out corev1.ResourceList, c *resourcev1.ResourceClaim) {
	for i := range c.Spec.Devices.Requests {
		for class, n := range requested(&c.Spec.Devices.Requests[i]) {
			name := corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
			q := out[name]
			q.Add(*resource.NewQuantity(n, resource.DecimalSI))
			out[name] = q
		}
	}
}

// requested returns the number of devices of a request by their class. Of alternatives
// only one is allocated, so that each class has the largest number of them.
func requested(r *resourcev1.DeviceRequest) map[string]int64 {
	out := map[string]int64{}
	for _, s := range r.FirstAvailable {
		out[s.DeviceClassName] = max(out[s.DeviceClassName], devices(s.AllocationMode, s.Count))
	}
	if r.Exactly != nil {
		out[r.Exactly.DeviceClassName] = devices(r.Exactly.AllocationMode, r.Exactly.Count)
	}
	return out
}

// devices returns the number of devices of an allocation mode: for all that there are,
// the most that a claim can have.
func devices(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return count
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}
