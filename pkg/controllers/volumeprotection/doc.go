// Package volumeprotection keeps PersistentVolumeClaims that pods use, PersistentVolumes that
// are bound, and VolumeAttributesClasses that claims or volumes name, from being removed. All
// have a finalizer from their creation on; the controllers here remove it when an object that
// is being deleted is no longer used.
package volumeprotection
