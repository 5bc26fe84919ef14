// Package manager runs a list of controllers as a daemon does:
// kube-controller-manager is one such daemon, cloud-controller-manager another.
// It selects controllers by name, starts them while this replica holds the
// leader election lease, and gives each a client of its own service account.
package manager
