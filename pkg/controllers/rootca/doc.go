// Package rootca publishes the cluster's CA in every namespace, as the
// ConfigMap kube-root-ca.crt that pods verify the API by.
package rootca
