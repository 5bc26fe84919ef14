// Package revocation is how all daemons learn which client certificates are
// good no longer, and act on it within seconds.
//
// A List is what revocation lists (RFC 5280) say that an authority of the
// clients has signed. kube-apiserver reads its own from a file
// (--client-crl-file) and publishes it in the ConfigMap
// kube-system/extension-apiserver-authentication, beside the authorities, where
// the other API servers and, by a Follower, the kubelets, schedulers and
// controller managers find it. Every reader verifies the signature: a user who can
// write the ConfigMap can revoke nothing. Revocations are never undone: if the
// ConfigMap is deleted or an old list put back, every daemon keeps the lists
// that it has seen, and the API servers publish them again.
//
// Connections ends what is open with a certificate when that is revoked.
package revocation
