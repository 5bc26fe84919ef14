// Package vm does what operators do on real machines: virtual ones, under QEMU,
// with cgroup v2, every capability and Debian's own kernel. `make e2e-vm` runs
// it, in a network namespace of its own, where a bridge joins the machines and
// nothing leaves.
package vm
