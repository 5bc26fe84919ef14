// Package cloud is the contract between cloud-controller-manager and whoever
// provides the machines. A Provider is a value with a part for each thing a
// provider may know about: instances, routes, load balancers. A part that is
// nil is one the provider does not have; the controller that needs it does not
// run then.
//
// The controllers are in node/ (instances: what a Node is told about its
// machine, and what becomes of it when the machine is off or gone), route/ and
// service/; manager/ is the daemon that runs them. The providers are docker/
// (node containers) and baremetal/ (machines that nobody manages).
//
// Volumes are not here yet, for there are no PersistentVolumes. Their place is
// a fourth part of Provider, Volumes, with the calls that a disk of the
// provider's needs: make it, delete it, attach it to the machine of a Node and
// detach it. Nothing else of the contract changes with them.
package cloud
