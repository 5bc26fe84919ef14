// Package kubeconfig reads and writes the files that say where a cluster is
// and who asks: the same files kubectl reads.
package kubeconfig
