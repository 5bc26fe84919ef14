// Package vm performs the tasks of operators on virtual machines, under QEMU, with cgroup v2, all
// capabilities and Debian's own kernel. `make e2e-vm` runs it in its own network namespace, where
// a bridge joins the machines and nothing else is reachable.
package vm
