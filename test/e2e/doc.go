// Package e2e tests a whole cluster on a real containerd: the binaries in bin/, real
// containers and packet filter rules, used with the real kubectl. The cluster runs in its own
// network namespace, independent of other programs on this machine.
package e2e
