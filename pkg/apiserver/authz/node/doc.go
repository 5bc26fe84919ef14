// Package node lets a kubelet do what its pods need: it reads the secrets,
// configmaps and tokens that pods bound to its own node refer to. What refers
// to what is kept in memory and follows the watch cache.
// https://kubernetes.io/docs/reference/access-authn-authz/node/
package node
