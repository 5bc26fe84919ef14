// Package rules is iptables as text: fragments of rules come in from many
// contributors, chains of rules come out, and with them the difference to what
// the kernel was last told. It knows nothing of Services and touches no kernel.
package rules
