// Package e2e tests a whole cluster on a real containerd: the binaries of
// bin/, real containers, real rules, driven by the real kubectl. The cluster
// runs in a network namespace of its own, beside whatever runs on this machine.
package e2e
