// Package kubeconfig reads and writes kubeconfig files, compatible with kubectl.
package kubeconfig
