// Package expression compiles and evaluates the CEL expressions of admission:
// the match conditions of webhooks and all that admission policies consist of.
// The API server evaluates them; kube-controller-manager checks their types.
// https://kubernetes.io/docs/reference/using-api/cel/
package expression
