// Package persistentvolume binds PersistentVolumeClaims to PersistentVolumes.
//
// A claim and its volume refer to each other: spec.claimRef of the volume, with the
// claim's UID, reserves the volume, and spec.volumeName of the claim completes the
// binding. The volume is written first, so that two claims cannot get one volume: the
// second write conflicts. The annotations pv.kubernetes.io/bound-by-controller and
// pv.kubernetes.io/bind-completed record what a controller has done, so that a restarted
// one continues.
//
// Volumes are provisioned by external provisioners, which the controller asks with an
// annotation of the claim. A provisioner also deletes its released volumes.
package persistentvolume
