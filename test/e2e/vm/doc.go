// Package vm performs the tasks of operators on virtual machines, under QEMU, with cgroup v2, all
// capabilities and Debian's own kernel: it follows the operator's page, and uses volumes that another
// machine serves. `make e2e-vm` runs it in its own network namespace, where a bridge joins the machines
// of a test and nothing else is reachable.
package vm
