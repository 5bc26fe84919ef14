// Package bootstrapsigner signs the ConfigMap kube-public/cluster-info with each bootstrap
// token that has the signing usage. A machine with such a token verifies the cluster's
// address and CA by the signature.
package bootstrapsigner
