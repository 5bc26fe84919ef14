// Package resourceclaim makes the ResourceClaims of pods out of templates, and frees claims
// that no pod uses.
//
// Two loops share the work. That of pods creates the claims which a pod's templates ask for
// and names them in the pod's status; the pod owns them. That of claims removes pods which
// are gone or have ended from status.reservedFor, deallocates a claim with its last
// consumer, and deletes the claims of pods that have ended.
package resourceclaim
