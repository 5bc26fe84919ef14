// Package resourceclaim holds what the scheduler, the controllers and the command line
// agree on about the ResourceClaims of pods: which claim a pod uses, and for which pods a
// claim is reserved.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package resourceclaim
