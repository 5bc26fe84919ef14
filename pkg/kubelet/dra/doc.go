// Package dra prepares the resource claims of pods on a node with the drivers of dynamic
// resource allocation (KEP-4381).
//
// A driver registers with the plugin watcher as a plugin of type DRAPlugin. Before the
// kubelet creates the sandbox of a pod, the driver prepares the devices of the pod's
// claims and returns their CDI ids, which the containers get. When the last pod of the
// node that uses a claim has ended, the driver unprepares it. A checkpoint in
// <root>/dra_manager_state says which pods use which claims, so that a kubelet which was
// killed at any moment unprepares what it had prepared.
//
// What drivers report about the health of their devices is shown in the status of the containers
// that have them, until the report expires (KEP-4680). It is not kept over restarts.
//
// A driver that stays away cannot prepare anything: its ResourceSlices of this node are
// deleted, so that the scheduler allocates none of its devices.
package dra
