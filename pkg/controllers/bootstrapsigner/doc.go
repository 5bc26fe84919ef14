// Package bootstrapsigner signs the ConfigMap kube-public/cluster-info with
// each bootstrap token that may sign, so that a machine which knows a token can
// tell that the cluster's address and CA come from someone who knows it, too.
package bootstrapsigner
