// Package node authorizes kubelets: within a fixed set of rules, a kubelet may
// read only the Secrets, ConfigMaps, ServiceAccounts and volumes that pods bound
// to its node refer to. A graph of these references, kept in memory, follows the watch
// cache.
//
// https://kubernetes.io/docs/reference/access-authn-authz/node/
package node
