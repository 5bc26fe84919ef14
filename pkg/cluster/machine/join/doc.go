// Package join verifies the cluster that a machine joins, by cluster-info
// signed with a bootstrap token and the hash of the CA. It also encrypts the
// files that control planes share.
package join
