// Package upgradelock defines the Lease by which machines of a cluster are upgraded one
// at a time: a Lease in kube-system whose holder is the name of a node. The API server
// lets a node acquire it only while it is free.
package upgradelock
