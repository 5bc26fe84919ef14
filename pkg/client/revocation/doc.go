// Package revocation is how all daemons learn which client certificates are
// good no longer, and act on it within seconds.
//
// A List is what revocation lists (RFC 5280) say that an authority of the
// clients has signed. kube-apiserver reads its own from a file
// (--client-crl-file) and publishes it in the ConfigMap
// kube-system/extension-apiserver-authentication, beside the authorities, where
// the other API servers and, by a Follower, the kubelets, schedulers and
// controller managers find it. The signature makes the list: whoever can write
// the ConfigMap can revoke nothing. Lists are only ever added to: whoever
// deletes the ConfigMap, or puts an old list back, un-revokes nothing, since
// everybody keeps what they have seen and the API servers publish it again.
//
// Connections ends what is open with a certificate when that is revoked.
package revocation
