// Package volumeprotection keeps PersistentVolumeClaims that pods use, and
// PersistentVolumes that are bound, from being removed. Both have a finalizer from their
// creation on; the controllers here remove it when an object that is being deleted is no
// longer used.
package volumeprotection
