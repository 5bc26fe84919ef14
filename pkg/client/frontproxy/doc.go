// Package frontproxy authenticates the requests that API servers pass on to an extension
// API server: which proxies it trusts, and in which headers they name the user, it reads
// from the ConfigMap kube-system/extension-apiserver-authentication.
//
// https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
package frontproxy
