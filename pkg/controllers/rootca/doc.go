// Package rootca publishes the cluster's CA in every namespace, in the ConfigMap
// kube-root-ca.crt. Pods verify the API server with it.
package rootca
