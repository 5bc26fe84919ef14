package scheduler

import (
	resourcev1 "k8s.io/api/resource/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/dynamicresources"
)

// deviceSources returns the informers of what the plugin DynamicResources reads.
func (s *scheduler) deviceSources(devices *dynamicresources.Plugin) []source {
	return []source{
		watched(s, "resourceclaims", func(old, new *resourcev1.ResourceClaim) {
			if devices.OnClaim(old, new) { // most changes help no pod: the scheduler allocates claims
				s.queue.Wake(framework.DeviceChanged)
			}
		}),
		watched(s, "deviceclasses", waking(s, devices.OnClass, framework.DeviceChanged)),
		watched(s, "resourceslices", waking(s, devices.OnSlice, framework.DeviceChanged)),
		watched(s, "devicetaintrules", waking(s, devices.OnTaintRule, framework.DeviceChanged)),
	}
}
