package framework

import "strings"

// Event is a change in the cluster, or a set of such changes.
type Event uint32

// Changes that may let a pod fit that did not fit before.
const (
	NodeAdded Event = 1 << iota
	NodeGone
	NodeAllocatable
	NodeLabels
	NodeTaints
	NodeSchedulable
	PodGone   // from a node
	PodAdded  // to a node
	PodLabels // of a pod on a node
	NamespaceLabels
	VolumeChanged // a claim, a volume or a storage class
	DeviceChanged // a device, a resource claim or a device class
	DeviceClassChanged

	AnyEvent Event = 1<<iota - 1
)

func (e Event) String() string {
	names := [...]string{
		"NodeAdd", "NodeDelete", "NodeAllocatableChange", "NodeLabelChange", "NodeTaintChange", "NodeSpecUnschedulableChange",
		"AssignedPodDelete", "AssignedPodAdd", "AssignedPodUpdate", "NamespaceUpdate", "StorageUpdate", "DeviceUpdate", "DeviceClassUpdate",
	}
	var parts []string
	for i, name := range names {
		if e&(1<<i) != 0 {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, "|")
}
