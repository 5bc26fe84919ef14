// Package cloud is the contract between cloud-controller-manager and cloud providers. A
// Provider has a part for each thing that a provider may manage: instances, routes, load
// balancers. If a part is nil, the provider does not support it, and the controller that
// needs it does not run.
//
// The controllers are in node/ (instances: the metadata of a Node, and what happens to it
// when its machine is off or deleted), route/ and service/; manager/ is the daemon that runs
// them. The providers are docker/ (node containers) and baremetal/ (machines without a
// management API).
//
// Volumes are not supported yet, because there are no PersistentVolumes. They will be a
// fourth part of Provider, Volumes, with the calls for the provider's disks: create, delete,
// attach to the machine of a Node, and detach. Nothing else of the contract changes with
// them.
package cloud
