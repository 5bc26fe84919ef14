// Package revocation distributes revoked client certificates to all daemons, which act
// on a revocation within seconds.
//
// A List is the content of revocation lists (RFC 5280) signed by a client CA.
// kube-apiserver reads its own from a file (--client-crl-file) and publishes it in the
// ConfigMap kube-system/extension-apiserver-authentication, beside the CAs, where the
// other API servers and, with a Follower, the kubelets, schedulers and controller
// managers find it. Every reader verifies the signature: a user who can write the
// ConfigMap cannot revoke anything. Revocations are never undone: if the ConfigMap is
// deleted or replaced by an old list, every daemon keeps the lists that it has seen,
// and the API servers publish them again.
//
// Connections closes the connections of a certificate when it is revoked.
package revocation
