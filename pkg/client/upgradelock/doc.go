// Package upgradelock is the agreement by which machines of a cluster take
// turns when they are upgraded: a Lease in kube-system, held by the name of the
// node. The apiserver lets a node take it when it is free, and from nobody.
package upgradelock
