// Package crew is what a daemon is that consists of controllers: a list of
// them, of which one chooses by name, that work while this replica leads, each
// under an account of its own. kube-controller-manager is one,
// cloud-controller-manager is another.
package crew
