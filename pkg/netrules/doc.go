// Package netrules assembles iptables rules as text: it merges the fragments of many
// contributors into chains and computes the changes since the last commit. It does not
// depend on Services or on a kernel.
package netrules
